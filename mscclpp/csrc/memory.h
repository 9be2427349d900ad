#pragma once

#include <memory>
#include <mutex>
#include <string>

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
  uint64_t magic = 0x6d65'6d6f'7279'0001;
  ProcessName owner;
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t transports = 0;
  // The file behind it, if there is one.
  int32_t descriptor = -1;  // of the owner
  int32_t gpu = -1;         // whose memory it is
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t fileBytes = 0;
  uint64_t fileOffset = 0;
  ctran::api::GpuMemoryName onGpu{};  // for others, if it is a GPU's
};

struct RegisteredMemory::Impl {
  MemoryName name;
  char* local = nullptr;       // null: it is not mapped here
  std::shared_ptr<void> held;  // the mapping, or what else keeps `local` alive
};

struct EndpointName {
  uint64_t magic = 0x656e'6470'6f69'0001;
  ProcessName owner;
  int32_t transport = 0;
  int32_t maxWriteQueueSize = 0;
  int32_t gpu = -1;  // on which its kernels run; -1: the host
  int32_t unused = 0;
};

struct Endpoint::Impl {
  EndpointName name;
  EndpointConfig config;
};

struct Connection::Impl {
  std::shared_ptr<Context> context;
  EndpointName local;
  EndpointName remote;
  std::shared_ptr<Descriptor> process;  // of the remote end; null if it is this one

  /// Of copies from and to GPUs. Where kernels run on one, it is there before any of them may wait
  /// for the copies.
  ctran::api::OwnGpuStream& stream() const;
  /// Waits until they have ended.
  void finishCopies() const;

 private:
  mutable std::once_flag once_;
  mutable std::unique_ptr<ctran::api::OwnGpuStream> stream_;
};

}  // namespace mscclpp
