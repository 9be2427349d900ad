#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "ctran/communicator.h"
#include "ctran/gpu.h"
#include "exposed.h"
#include "link.h"
#include "names.h"

namespace mscclpp {

struct RegisteredMemory::Impl {
  MemoryName name;
  char* local = nullptr;             // null: it is not mapped here
  std::shared_ptr<void> held;        // the mapping, or what else keeps `local` alive
  std::unique_ptr<Exposed> exposed;  // of its owner, if it is for connections between hosts
};

struct Endpoint::Impl {
  EndpointName name;
  EndpointConfig config;

  /// For the one connection that it serves. Throws Error(InvalidUsage) the second time.
  std::unique_ptr<ctran::api::InitPoint> takeInitPoint() const;

  mutable std::mutex mutex;
  mutable std::unique_ptr<ctran::api::InitPoint> initPoint;  // of this process' own, between hosts
};

struct Connection::Impl {
  std::shared_ptr<Context> context;
  EndpointName local;
  EndpointName remote;
  std::shared_ptr<Descriptor> process;  // of the remote end; null if it is this one, or far
  std::unique_ptr<Link> link;           // between hosts, and for all who ask for that

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
