#pragma once

#include <array>
#include <cstdint>

#include "ctran/gpu.h"
#include "host.h"
#include "mscclpp/core.hpp"

namespace mscclpp {

/// A process, as others know it.
struct ProcessName {
  HostName host{};
  uint64_t token = 0;
  int32_t pid = 0;

  static ProcessName own();
  bool isOwn() const { return token == ownProcessToken(); }
  bool isOfThisHost() const { return host == ownHostName(); }
};

/// A memory, as it travels.
struct MemoryName {
  uint64_t magic = 0x6d65'6d6f'7279'0003;
  ProcessName owner;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t transports = 0;
  uint64_t exposed = 0;  // its id for connections between hosts; 0: it is for none
  // The file behind it, if there is one.
  int32_t descriptor = -1;  // of the owner
  int32_t gpu = -1;         // whose memory it is
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t fileBytes = 0;
  uint64_t fileOffset = 0;
  ctran::api::GpuMemoryName onGpu{};  // for others, if it is a GPU's
};

/// An endpoint, as it travels.
struct EndpointName {
  uint64_t magic = 0x656e'6470'6f69'0002;
  ProcessName owner;
  int32_t transport = 0;
  int32_t maxWriteQueueSize = 0;
  int32_t gpu = -1;  // on which its kernels run; -1: the host
  int32_t unused = 0;
  std::array<char, 1024> handle{};  // of its InitPoint, ended by a zero; empty for CudaIpc

  Transport transportOf() const { return static_cast<Transport>(transport); }
};

/// Whether messages of the engine carry it.
inline bool isBetweenHosts(Transport transport) {
  return transport >= Transport::IB0 && transport <= Transport::Ethernet;
}

}  // namespace mscclpp
