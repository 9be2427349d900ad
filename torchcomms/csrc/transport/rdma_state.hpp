#pragma once

#include <comms/torchcomms/transport/RdmaTransport.h>

#include "ctran/rdma/transport.h"

namespace torch::comms::detail {

struct RdmaFutureState {
  ctran::RdmaFuture future;
};

struct RdmaMemoryState {
  RdmaMemoryState(void* address, size_t bytes, int gpu, std::shared_ptr<void> owner, bool reuses)
      : isOwned(owner != nullptr),
        extent(address, bytes, gpu, {std::move(owner)}, reuses && isOwned) {}

  const bool isOwned;  // it holds the memory
  ctran::RdmaExtent extent;
};

struct EventBaseState {
  std::shared_ptr<ctran::RdmaLoop> loop;
};

struct RdmaTransportState {
  int device;
  ctran::RdmaTransport transport;
};

}  // namespace torch::comms::detail
