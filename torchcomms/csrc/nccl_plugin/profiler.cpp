// The profiler plug-in: NCCL loads it where NCCL_PROFILER_PLUGIN names this library, and takes the
// newest version that both know.
#include <atomic>
#include <cstring>
#include <exception>
#include <new>

#include "torchcomms/csrc/nccl_plugin/abi.h"
#include "torchcomms/csrc/nccl_plugin/names.h"
#include "torchcomms/csrc/nccl_plugin/recorder.h"

namespace torchcomms::nccl_plugin {
namespace {

constexpr int kLaunches = kColl | kP2p;
constexpr int kLaunchesAndKernels = kLaunches | kKernelChannel;
constexpr size_t kLongestName = 64;

// Numbers as pointers, which is all that they are to NCCL.
void* asPointer(uint64_t number) { return reinterpret_cast<void*>(number); }  // NOLINT
uint64_t asNumber(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

std::string_view text(const char* from) {
  return from == nullptr ? std::string_view()
                         : std::string_view(from, ::strnlen(from, kLongestName));
}

std::string nameOf(const char* comm) {
  return comm == nullptr || *comm == 0 ? "nccl" : "nccl: " + std::string(text(comm));
}

Call collective(const CollV1& e) {
  return {false,  nameAt(kFunctions, e.func),  nameAt(kTypes, e.datatype),  e.count,
          e.root, nameAt(kAlgorithms, e.algo), nameAt(kProtocols, e.proto), e.nMaxChannels};
}
template <typename E>
Call collective(const E& e) {
  int channels = 0;
  if constexpr (requires { e.nChannels; }) {
    channels = e.nChannels;
  } else {
    channels = e.nMaxChannels;
  }
  return {false,  text(e.func), text(e.datatype), e.count,
          e.root, text(e.algo), text(e.proto),    channels};
}

Call message(const P2pV1& e) {
  return {true, nameAt(kFunctions, e.func), nameAt(kTypes, e.datatype), e.count, e.peer, {}, {}, 0};
}
template <typename E>
Call message(const E& e) {
  int channels = 0;
  if constexpr (requires { e.nChannels; }) channels = e.nChannels;
  return {true, text(e.func), text(e.datatype), e.count, e.peer, {}, {}, channels};
}

/// Before version 4 a communicator is introduced by its first operation, and not how large it is.
struct Stranger {
  bool seesKernels;
  std::atomic<Context> context{0};

  template <typename E>
  Context meet(const E& event, int rank) {
    Context known = context.load(std::memory_order_acquire);
    if (known != 0) return known;
    const Context made = open({nameOf(event.name), event.commHash, rank, rank + 1, seesKernels});
    if (context.compare_exchange_strong(known, made)) return made;
    close(made);
    return known;
  }
};

template <bool kSeesKernels>
Result initStranger(void** context, int* mask) noexcept {
  *context = new (std::nothrow) Stranger{kSeesKernels};
  *mask = *context == nullptr ? 0 : kSeesKernels ? kLaunchesAndKernels : kLaunches;
  return Result::Success;
}
Result finalizeStranger(void* context) noexcept {
  const auto* stranger = static_cast<Stranger*>(context);
  if (stranger != nullptr) close(stranger->context.load(std::memory_order_acquire));
  delete stranger;
  return Result::Success;
}

Result initKnown(void** context, uint64_t comm, int* mask, const char* name, int, int ranks,
                 int rank, Logger) noexcept try {
  const Context made = open({nameOf(name), comm, rank, ranks, true});
  *context = asPointer(made);
  *mask = made == 0 ? 0 : kLaunchesAndKernels;
  return Result::Success;
} catch (const std::exception&) {  // no memory
  *context = nullptr;
  *mask = 0;
  return Result::Success;
}
Result initKnownV4(void** context, int* mask, const char* name, uint64_t comm, int nodes, int ranks,
                   int rank, Logger log) noexcept {
  return initKnown(context, comm, mask, name, nodes, ranks, rank, log);
}
Result finalizeKnown(void* context) noexcept {
  close(asNumber(context));
  return Result::Success;
}

template <typename E>
Context contextOf(void* context, const E& event) {
  if constexpr (requires { event.coll.commHash; }) {
    auto* stranger = static_cast<Stranger*>(context);
    if (stranger == nullptr) return 0;
    if (event.head.type == kColl) return stranger->meet(event.coll, event.head.rank);
    return stranger->meet(event.p2p, event.head.rank);
  } else {
    return asNumber(context);
  }
}

template <typename E>
Result startEvent(void* context, void** handle, E* event) noexcept try {
  *handle = nullptr;
  switch (event->head.type) {
    case kColl:
      *handle = asPointer(begin(contextOf(context, *event), collective(event->coll)));
      break;
    case kP2p:
      *handle = asPointer(begin(contextOf(context, *event), message(event->p2p)));
      break;
    case kKernelChannel:
      *handle = asPointer(beginKernel(asNumber(event->head.parent)));
      break;
    default:
      break;
  }
  return Result::Success;
} catch (const std::exception&) {  // no memory
  return Result::Success;
}

Result stopEvent(void* handle) noexcept {
  if (handle != nullptr) end(asNumber(handle));
  return Result::Success;
}

Result recordEventState(void*, int, StateArgs*) noexcept { return Result::Success; }

constexpr const char* kName = "torchcomms";

}  // namespace
}  // namespace torchcomms::nccl_plugin

#define PLUGIN extern "C" __attribute__((visibility("default")))
namespace plugin = torchcomms::nccl_plugin;

PLUGIN const plugin::ProfilerV1 ncclProfiler_v1{
    plugin::kName,     plugin::initStranger<false>, plugin::startEvent<plugin::EventV1>,
    plugin::stopEvent, plugin::recordEventState,    plugin::finalizeStranger};
PLUGIN const plugin::ProfilerV2 ncclProfiler_v2{
    plugin::kName,     plugin::initStranger<false>, plugin::startEvent<plugin::EventV2>,
    plugin::stopEvent, plugin::recordEventState,    plugin::finalizeStranger};
PLUGIN const plugin::ProfilerV3 ncclProfiler_v3{
    plugin::kName,     plugin::initStranger<true>, plugin::startEvent<plugin::EventV3>,
    plugin::stopEvent, plugin::recordEventState,   plugin::finalizeStranger};
PLUGIN const plugin::ProfilerV4 ncclProfiler_v4{
    plugin::kName,     plugin::initKnownV4,      plugin::startEvent<plugin::EventV4>,
    plugin::stopEvent, plugin::recordEventState, plugin::finalizeKnown};
PLUGIN const plugin::ProfilerV5 ncclProfiler_v5{
    plugin::kName,     plugin::initKnown,        plugin::startEvent<plugin::EventV4>,
    plugin::stopEvent, plugin::recordEventState, plugin::finalizeKnown};
