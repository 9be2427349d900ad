#pragma once

#include <comms/torchcomms/transport/RdmaTransport.h>

#include "ctran/rdma/transport.h"

namespace torch::comms::detail {

struct RdmaFutureState {
  ctran::RdmaFuture future;
};

struct RdmaMemoryState {
  std::shared_ptr<ctran::RdmaRegistration> registration;
  bool isOwned = false;  // it holds the memory
};

struct EventBaseState {
  std::shared_ptr<ctran::RdmaLoop> loop;
};

struct RdmaTransportState {
  int device;
  ctran::RdmaTransport transport;
};

}  // namespace torch::comms::detail
