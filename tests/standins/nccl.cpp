// A stand-in for libnccl.so.2 on host memory: operations run on the streams of the stand-in driver,
// over the engine's communicator between processes.
//
// What it takes from the real one: communicators can be non-blocking; a group is one operation;
// operations of one communicator run in order, whatever their streams; a rank that is missing, dead
// or aborted leaves the others' streams stuck until they abort too; two ranks of one GPU are
// refused.
//
// CTRAN_CUDA_LIBRARY names the stand-in driver, STAND_IN_NCCL_DIRECTORY a directory that all ranks
// see, STAND_IN_NCCL_VERSION the version it says it has.

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "ctran/os/process.h"
#include "tests/standins/nccl_plugins.h"
#include "torchcomms/csrc/backends/nccl/library.hpp"

#define STAND_IN extern "C" __attribute__((visibility("default")))

namespace torch::comms::nccl {

namespace {

using ctran::Collective;
using ctran::CollectiveKind;
using ctran::gpu::DevicePtr;
using ctran::gpu::Event;
using ctran::gpu::MemoryHandle;
using GpuResult = ctran::gpu::Result;

constexpr auto kForever = std::chrono::hours(1);

/// The functions of the stand-in driver that it needs.
struct Gpu {
  GpuResult (*launchHostFunc)(Stream, void (*)(void*), void*);
  GpuResult (*eventCreate)(Event*, unsigned);
  GpuResult (*eventRecord)(Event, Stream);
  GpuResult (*streamWaitEvent)(Stream, Event, unsigned);
  GpuResult (*streamIsCapturing)(Stream, ctran::gpu::CaptureStatus*);
  GpuResult (*deviceGetAttribute)(int*, ctran::gpu::DeviceAttribute, ctran::gpu::Device);
  GpuResult (*memCreate)(MemoryHandle*, size_t, const void*, unsigned long long);
  GpuResult (*memRelease)(MemoryHandle);
  GpuResult (*memAddressReserve)(DevicePtr*, size_t, size_t, DevicePtr, unsigned long long);
  GpuResult (*memAddressFree)(DevicePtr, size_t);
  GpuResult (*memMap)(DevicePtr, size_t, size_t, MemoryHandle, unsigned long long);
  GpuResult (*memUnmap)(DevicePtr, size_t);
  GpuResult (*memGetAddressRange)(DevicePtr*, size_t*, DevicePtr);

  static const Gpu& get() {
    static const Gpu gpu = [] {
      void* library = dlopen(std::getenv("CTRAN_CUDA_LIBRARY"), RTLD_NOW);
      Gpu made{};
      const auto find = [&](auto& function, const char* symbol) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
      };
      find(made.launchHostFunc, "cuLaunchHostFunc");
      find(made.eventCreate, "cuEventCreate");
      find(made.eventRecord, "cuEventRecord");
      find(made.streamWaitEvent, "cuStreamWaitEvent");
      find(made.streamIsCapturing, "cuStreamIsCapturing");
      find(made.deviceGetAttribute, "cuDeviceGetAttribute");
      find(made.memCreate, "cuMemCreate");
      find(made.memRelease, "cuMemRelease");
      find(made.memAddressReserve, "cuMemAddressReserve");
      find(made.memAddressFree, "cuMemAddressFree");
      find(made.memMap, "cuMemMap");
      find(made.memUnmap, "cuMemUnmap");
      find(made.memGetAddressRange, "cuMemGetAddressRange_v2");
      return made;
    }();
    return gpu;
  }
};

struct Pending {
  Comm comm;
  Stream stream;
  Collective collective;
};

}  // namespace

struct CommTag {
  std::shared_ptr<ctran::Communicator> engine;
  std::shared_ptr<const StandInPlugins> plugins;
  bool blocking = true;
  int rank = 0;
  int size = 1;
  std::atomic<Result> state{Result::Success};
  std::thread helper;  ///< of a non-blocking call
  std::map<RedOp, double> factors;
  RedOp nextOp = 5;
  std::set<void*> registered;
  Stream lastStream = nullptr;
  bool used = false;
  Event last = nullptr;
  std::string lastError;
  std::mutex mutex;
  std::condition_variable changed;
  bool aborted = false;
  int running = 0;   ///< tasks on streams
  int launched = 0;  ///< tasks on streams, or on their way there

  void drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return aborted || running + launched == 0; });
  }

  /// Runs `call`, on a thread of its own if the communicator does not block.
  Result run(std::function<Result()> call) {
    if (helper.joinable()) helper.join();
    if (blocking) return state = call();
    state = Result::InProgress;
    helper = std::thread([this, call = std::move(call)] { state = call(); });
    return Result::InProgress;
  }
};

namespace {

struct GroupOfCalls {
  int depth = 0;
  Result error = Result::Success;
  std::vector<Pending> calls;
};

thread_local GroupOfCalls group;
thread_local std::string lastError;

template <typename Call>
Result guarded(Comm comm, Call call) {
  try {
    call();
    return Result::Success;
  } catch (const std::exception& e) {
    (comm ? comm->lastError : lastError) = e.what();
    return Result::SystemError;
  }
}

/// On a stream's thread. What goes wrong there is a kernel that spins until its communicator is
/// aborted.
void execute(Comm comm, const std::vector<Collective>& collectives,
             const std::vector<void*>& handles, bool replayed) {
  {
    const std::lock_guard lock(comm->mutex);
    if (!replayed) {
      --comm->launched;
      comm->changed.notify_all();
    }
    if (comm->aborted) return;
    ++comm->running;
  }
  try {
    std::vector<std::shared_ptr<ctran::Work>> works;
    for (const Collective& one : collectives) {
      // The engine's broadcast is in place.
      if (one.kind == CollectiveKind::Broadcast && one.root == comm->rank &&
          one.blockBytes() != 0) {
        std::memmove(one.output, one.input, one.blockBytes());
      }
    }
    std::vector<void*> kernels;
    for (void* handle : handles) kernels.push_back(comm->plugins->run(handle));
    for (const Collective& one : collectives) works.push_back(comm->engine->post(one, kForever));
    for (const auto& work : works) work->wait();
    for (void* kernel : kernels) comm->plugins->stop(kernel);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "the stand-in for libnccl.so.2, rank %d: %s\n", comm->rank, e.what());
    std::unique_lock lock(comm->mutex);
    comm->changed.wait(lock, [&] { return comm->aborted; });
  }
  const std::lock_guard lock(comm->mutex);
  --comm->running;
  comm->changed.notify_all();
}

void enqueue(Comm comm, Stream stream, std::vector<Collective> collectives) {
  const Gpu& gpu = Gpu::get();
  ctran::gpu::CaptureStatus status{};
  gpu.streamIsCapturing(stream, &status);
  const bool capturing = status != ctran::gpu::CaptureStatus::None;
  if (!capturing) {
    if (comm->used && comm->lastStream != stream) gpu.streamWaitEvent(stream, comm->last, 0);
  }
  struct Launch {
    Comm comm;
    std::vector<Collective> collectives;
    std::vector<void*> handles;  // of the profiler, which is not told of graphs
    bool replayed;
  };
  std::vector<void*> handles;
  if (!capturing && comm->plugins) {
    for (const Collective& one : collectives) handles.push_back(comm->plugins->launch(one));
  }
  if (!capturing) {
    const std::lock_guard lock(comm->mutex);
    ++comm->launched;
  }
  // Never freed: a graph may launch it again.
  auto* launch = new Launch{comm, std::move(collectives), handles, capturing};
  gpu.launchHostFunc(
      stream,
      [](void* argument) {
        const auto* one = static_cast<Launch*>(argument);
        execute(one->comm, one->collectives, one->handles, one->replayed);
      },
      launch);
  for (void* handle : handles) comm->plugins->stop(handle);
  if (capturing) return;
  gpu.eventRecord(comm->last, stream);
  comm->lastStream = stream;
  comm->used = true;
}

Result endGroup() {
  std::vector<Pending> calls;
  calls.swap(group.calls);
  const Result error = std::exchange(group.error, Result::Success);
  if (error != Result::Success || calls.empty()) return error;
  Comm comm = calls[0].comm;
  return comm->run([comm, calls] {
    std::vector<Collective> collectives;
    for (const Pending& one : calls) collectives.push_back(one.collective);
    enqueue(comm, calls[0].stream, std::move(collectives));
    return Result::Success;
  });
}

Result add(Comm comm, Stream stream, Collective collective) {
  if (comm->state == Result::InProgress) return Result::InvalidArgument;
  group.calls.push_back({comm, stream, std::move(collective)});
  return group.depth > 0 ? Result::Success : endGroup();
}

ctran::DataType engineType(DataType type) {
  using T = ctran::DataType;
  constexpr T kTypes[] = {T::Int8,    T::UInt8,    T::Int32,      T::UInt32,
                          T::Int64,   T::UInt64,   T::Float16,    T::Float32,
                          T::Float64, T::BFloat16, T::Float8E4M3, T::Float8E5M2};
  return kTypes[static_cast<int>(type)];
}

ctran::ReduceOp engineOp(Comm comm, RedOp op) {
  using K = ctran::ReduceKind;
  constexpr K kKinds[] = {K::Sum, K::Product, K::Max, K::Min, K::Avg};
  if (op < 5) return {kKinds[op]};
  return {K::PremulSum, comm->factors.at(op)};
}

Collective describe(CollectiveKind kind, const void* from, void* to, size_t count, DataType type) {
  Collective c;
  c.kind = kind;
  c.type = engineType(type);
  c.count = count;
  c.input = static_cast<const std::byte*>(from);
  c.output = static_cast<std::byte*>(to);
  return c;
}

std::shared_ptr<ctran::Store> storeOf(const UniqueId& id) {
  static_cast<void>(id);
  return std::make_shared<ctran::DirectoryStore>(std::getenv("STAND_IN_NCCL_DIRECTORY"));
}

}  // namespace

STAND_IN Result ncclGetVersion(int* version) {
  const char* text = std::getenv("STAND_IN_NCCL_VERSION");
  *version = text ? std::atoi(text) : 22809;
  return Result::Success;
}

STAND_IN const char* ncclGetErrorString(Result) { return "an error of the stand-in"; }

STAND_IN const char* ncclGetLastError(Comm comm) {
  return comm ? comm->lastError.c_str() : lastError.c_str();
}

STAND_IN Result ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->bytes, sizeof(id->bytes), "stand-in-%llx",
                static_cast<unsigned long long>(ctran::processToken()) ^
                    static_cast<unsigned long long>(
                        std::chrono::steady_clock::now().time_since_epoch().count()));
  return Result::Success;
}

STAND_IN Result ncclCommInitRankConfig(Comm* made, int size, UniqueId id, int rank,
                                       Config* config) {
  auto* comm = new CommTag;
  comm->blocking = config->blocking != 0;
  comm->rank = rank;
  comm->size = size;
  Gpu::get().eventCreate(&comm->last, 0);
  *made = comm;
  return comm->run([=] {
    return guarded(comm, [&] {
      ctran::CommunicatorOptions options;
      options.rank = rank;
      options.size = size;
      options.name = id.bytes;
      options.store = storeOf(id);
      options.timeout = kForever;
      comm->engine = ctran::Communicator::create(options);
      int own = 0;
      Gpu::get().deviceGetAttribute(&own, ctran::gpu::DeviceAttribute::PciBusId, 0);
      std::vector<int> all(size);
      Collective gather = describe(CollectiveKind::AllGather, &own, all.data(), 1, DataType::Int32);
      comm->engine->run(gather, kForever);
      if (std::count(all.begin(), all.end(), own) > 1) {
        throw std::runtime_error("Duplicate GPU detected");
      }
      comm->plugins = std::make_shared<StandInPlugins>(
          config->commName, std::hash<std::string>()(id.bytes), size, rank);
    });
  });
}

STAND_IN Result ncclCommSplit(Comm comm, int color, int key, Comm* made, Config* config) {
  if (comm->state == Result::InProgress) return Result::InvalidArgument;
  *made = nullptr;
  const bool blocking = config ? config->blocking != 0 : comm->blocking;
  Event last = nullptr;
  Gpu::get().eventCreate(&last, 0);
  return comm->run([=] {
    return guarded(comm, [&] {
      comm->drain();  // the engine is one thread's at a time
      const int own[2] = {color, key};
      std::vector<int> all(2 * comm->size);
      Collective gather = describe(CollectiveKind::AllGather, own, all.data(), 2, DataType::Int32);
      comm->engine->run(gather, kForever);
      std::map<int, int> ranks;  // by key
      for (int r = 0; r < comm->size; ++r) {
        if (color != kSplitNoColor && all[2 * r] == color) ranks[all[2 * r + 1]] = r;
      }
      std::vector<int> members;
      for (const auto& [k, r] : ranks) members.push_back(r);
      auto part = comm->engine->split(members, "part", kForever);
      if (!part) return;
      auto* child = new CommTag;
      child->engine = std::move(part);
      child->blocking = blocking;
      child->last = last;
      child->rank = child->engine->rank();
      child->size = child->engine->size();
      *made = child;
    });
  });
}

STAND_IN Result ncclCommGetAsyncError(Comm comm, Result* state) {
  *state = comm->state;
  return Result::Success;
}

STAND_IN Result ncclCommFinalize(Comm comm) {
  return comm->run([=] {
    comm->drain();
    return Result::Success;
  });
}

STAND_IN Result ncclCommDestroy(Comm comm) {
  if (comm->helper.joinable()) comm->helper.join();
  comm->engine.reset();
  comm->plugins.reset();
  return Result::Success;  // the rest stays: a graph may know it
}

STAND_IN Result ncclCommAbort(Comm comm) {
  {
    const std::lock_guard lock(comm->mutex);
    comm->aborted = true;
    comm->changed.notify_all();
  }
  if (comm->engine) comm->engine->abort("aborted through the stand-in");
  if (comm->helper.joinable()) comm->helper.detach();
  std::unique_lock lock(comm->mutex);
  comm->changed.wait(lock, [&] { return comm->running == 0; });
  return Result::Success;
}

/// Not every compiler has a type for them.
double fromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = (bits & 1023) / 1024.0;
  double value = std::ldexp(exponent == 0 ? fraction : 1 + fraction, std::max(exponent, 1) - 15);
  if (exponent == 31) value = fraction == 0 ? HUGE_VAL : NAN;
  return bits >> 15 ? -value : value;
}

STAND_IN Result ncclRedOpCreatePreMulSum(RedOp* op, void* scalar, DataType type, ScalarResidence,
                                         Comm comm) {
  double factor = 0;
  switch (type) {
    case DataType::Float64:
      std::memcpy(&factor, scalar, sizeof(factor));
      break;
    case DataType::Float32: {
      float number = 0;
      std::memcpy(&number, scalar, sizeof(number));
      factor = number;
      break;
    }
    case DataType::Float16: {
      uint16_t bits = 0;
      std::memcpy(&bits, scalar, sizeof(bits));
      factor = fromHalf(bits);
      break;
    }
    case DataType::Bfloat16: {
      uint32_t bits = 0;
      std::memcpy(reinterpret_cast<char*>(&bits) + 2, scalar, 2);
      float number = 0;
      std::memcpy(&number, &bits, sizeof(number));
      factor = number;
      break;
    }
    default:
      return Result::InvalidArgument;
  }
  *op = comm->nextOp++;
  comm->factors[*op] = factor;
  return Result::Success;
}

STAND_IN Result ncclRedOpDestroy(RedOp op, Comm comm) {
  return comm->factors.erase(op) == 1 ? Result::Success : Result::InvalidArgument;
}

STAND_IN Result ncclReduce(const void* from, void* to, size_t count, DataType type, RedOp op,
                           int root, Comm comm, Stream stream) {
  Collective c = describe(CollectiveKind::Reduce, from, to, count, type);
  c.op = engineOp(comm, op);
  c.root = root;
  return add(comm, stream, c);
}

STAND_IN Result ncclBroadcast(const void* from, void* to, size_t count, DataType type, int root,
                              Comm comm, Stream stream) {
  Collective c = describe(CollectiveKind::Broadcast, from, to, count, type);
  c.root = root;
  return add(comm, stream, c);
}

STAND_IN Result ncclAllReduce(const void* from, void* to, size_t count, DataType type, RedOp op,
                              Comm comm, Stream stream) {
  Collective c = describe(CollectiveKind::AllReduce, from, to, count, type);
  c.op = engineOp(comm, op);
  return add(comm, stream, c);
}

STAND_IN Result ncclReduceScatter(const void* from, void* to, size_t count, DataType type, RedOp op,
                                  Comm comm, Stream stream) {
  Collective c = describe(CollectiveKind::ReduceScatter, from, to, count, type);
  c.op = engineOp(comm, op);
  return add(comm, stream, c);
}

STAND_IN Result ncclAllGather(const void* from, void* to, size_t count, DataType type, Comm comm,
                              Stream stream) {
  return add(comm, stream, describe(CollectiveKind::AllGather, from, to, count, type));
}

STAND_IN Result ncclAlltoAll(const void* from, void* to, size_t count, DataType type, Comm comm,
                             Stream stream) {
  return add(comm, stream, describe(CollectiveKind::AllToAll, from, to, count, type));
}

STAND_IN Result ncclSend(const void* from, size_t count, DataType type, int peer, Comm comm,
                         Stream stream) {
  Collective c = describe(CollectiveKind::Send, from, nullptr, count, type);
  c.root = peer;
  return add(comm, stream, c);
}

STAND_IN Result ncclRecv(void* to, size_t count, DataType type, int peer, Comm comm,
                         Stream stream) {
  Collective c = describe(CollectiveKind::Recv, nullptr, to, count, type);
  c.root = peer;
  return add(comm, stream, c);
}

/// As the real one's: of the driver's memory that is mapped, which cuIpcGetMemHandle does not know.
STAND_IN Result ncclMemAlloc(void** address, size_t bytes) {
  constexpr size_t kPage = 4096;
  const Gpu& gpu = Gpu::get();
  const size_t size = (bytes + kPage - 1) / kPage * kPage;
  MemoryHandle handle = 0;
  DevicePtr place = 0;
  const bool made = gpu.memCreate(&handle, size, nullptr, 0) == 0 &&
                    gpu.memAddressReserve(&place, size, 0, 0, 0) == 0 &&
                    gpu.memMap(place, size, 0, handle, 0) == 0 && gpu.memRelease(handle) == 0;
  *address = reinterpret_cast<void*>(place);
  return made ? Result::Success : Result::SystemError;
}

STAND_IN Result ncclMemFree(void* address) {
  const Gpu& gpu = Gpu::get();
  DevicePtr place = 0;
  size_t size = 0;
  const bool freed =
      gpu.memGetAddressRange(&place, &size, reinterpret_cast<DevicePtr>(address)) == 0 &&
      gpu.memUnmap(place, size) == 0 && gpu.memAddressFree(place, size) == 0;
  return freed ? Result::Success : Result::InvalidUsage;
}

STAND_IN Result ncclCommRegister(Comm comm, void* address, size_t, void** handle) {
  *handle = address;
  return comm->registered.insert(address).second ? Result::Success : Result::InvalidUsage;
}

STAND_IN Result ncclCommDeregister(Comm comm, void* handle) {
  return comm->registered.erase(handle) == 1 ? Result::Success : Result::InvalidUsage;
}

STAND_IN Result ncclGroupStart() {
  ++group.depth;
  return Result::Success;
}

STAND_IN Result ncclGroupEnd() { return --group.depth > 0 ? Result::Success : endGroup(); }

}  // namespace torch::comms::nccl
