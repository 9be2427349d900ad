#pragma once

#include <climits>
#include <cstddef>
#include <string>
#include <vector>

#include "ctran/gpu/runtime.h"

/// NCCL, or another library with its interface, as one table of typed function pointers that is
/// filled when a communicator asks for it. No header of NCCL or CUDA is needed: the types below
/// match its binary interface, and `tests/unit/nccl/abi_test.cpp` compares them with nccl.h where
/// there is one.
namespace torch::comms::nccl {

using ctran::gpu::Stream;

using Comm = struct CommTag*;
using Window = struct WindowTag*;

enum class Result : int {
  Success = 0,
  UnhandledCudaError = 1,
  SystemError = 2,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
  InProgress = 7,
  Timeout = 8,
};

enum class DataType : int {
  Int8 = 0,
  Uint8 = 1,
  Int32 = 2,
  Uint32 = 3,
  Int64 = 4,
  Uint64 = 5,
  Float16 = 6,
  Float32 = 7,
  Float64 = 8,
  Bfloat16 = 9,
  Float8e4m3 = 10,
  Float8e5m2 = 11,
};

/// Reductions that a communicator makes have higher numbers.
using RedOp = int;
inline constexpr RedOp kSum = 0;
inline constexpr RedOp kProd = 1;
inline constexpr RedOp kMax = 2;
inline constexpr RedOp kMin = 3;
inline constexpr RedOp kAvg = 4;

enum class ScalarResidence : int { Device = 0, HostImmediate = 1 };

struct UniqueId {
  char bytes[128];
};

inline constexpr int kUndefined = INT_MIN;
inline constexpr int kSplitNoColor = -1;

/// The configuration of version 2.27. Later versions have more fields at the end, which count as
/// not given; `size` leaves out the fields that earlier versions do not have.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 22700;
  int blocking = kUndefined;
  int cgaClusterSize = kUndefined;
  int minCTAs = kUndefined;
  int maxCTAs = kUndefined;
  const char* netName = nullptr;
  int splitShare = kUndefined;
  int trafficClass = kUndefined;
  const char* commName = nullptr;
  int collnetEnable = kUndefined;
  int CTAPolicy = kUndefined;
  int shrinkShare = kUndefined;
  int nvlsCTAs = kUndefined;
};

// X(member, exported symbol, parameters...): every library has these.
#define TORCHCOMMS_NCCL_FUNCTIONS(X)                                                               \
  X(getVersion, "ncclGetVersion", int* version)                                                    \
  X(getUniqueId, "ncclGetUniqueId", UniqueId* id)                                                  \
  X(commInitRankConfig, "ncclCommInitRankConfig", Comm* comm, int size, UniqueId id, int rank,     \
    Config* config)                                                                                \
  X(commFinalize, "ncclCommFinalize", Comm comm)                                                   \
  X(commDestroy, "ncclCommDestroy", Comm comm)                                                     \
  X(commAbort, "ncclCommAbort", Comm comm)                                                         \
  X(commSplit, "ncclCommSplit", Comm comm, int color, int key, Comm* made, Config* config)         \
  X(commGetAsyncError, "ncclCommGetAsyncError", Comm comm, Result* error)                          \
  X(redOpCreatePreMulSum, "ncclRedOpCreatePreMulSum", RedOp* op, void* scalar, DataType type,      \
    ScalarResidence residence, Comm comm)                                                          \
  X(redOpDestroy, "ncclRedOpDestroy", RedOp op, Comm comm)                                         \
  X(reduce, "ncclReduce", const void* from, void* to, size_t count, DataType type, RedOp op,       \
    int root, Comm comm, Stream stream)                                                            \
  X(broadcast, "ncclBroadcast", const void* from, void* to, size_t count, DataType type, int root, \
    Comm comm, Stream stream)                                                                      \
  X(allReduce, "ncclAllReduce", const void* from, void* to, size_t count, DataType type, RedOp op, \
    Comm comm, Stream stream)                                                                      \
  X(reduceScatter, "ncclReduceScatter", const void* from, void* to, size_t count, DataType type,   \
    RedOp op, Comm comm, Stream stream)                                                            \
  X(allGather, "ncclAllGather", const void* from, void* to, size_t count, DataType type,           \
    Comm comm, Stream stream)                                                                      \
  X(send, "ncclSend", const void* from, size_t count, DataType type, int peer, Comm comm,          \
    Stream stream)                                                                                 \
  X(recv, "ncclRecv", void* to, size_t count, DataType type, int peer, Comm comm, Stream stream)   \
  X(groupStart, "ncclGroupStart")                                                                  \
  X(groupEnd, "ncclGroupEnd")

// X(member, exported symbol, first version, parameters...): null in a library without it.
#define TORCHCOMMS_NCCL_OPTIONAL_FUNCTIONS(X)                                                    \
  X(memAlloc, "ncclMemAlloc", 21900, void** address, size_t bytes)                               \
  X(memFree, "ncclMemFree", 21900, void* address)                                                \
  X(commRegister, "ncclCommRegister", 21900, Comm comm, void* address, size_t bytes,             \
    void** handle)                                                                               \
  X(commDeregister, "ncclCommDeregister", 21900, Comm comm, void* handle)                        \
  X(commWindowRegister, "ncclCommWindowRegister", 22700, Comm comm, void* address, size_t bytes, \
    Window* window, int flags)                                                                   \
  X(commWindowDeregister, "ncclCommWindowDeregister", 22700, Comm comm, Window window)           \
  X(alltoAll, "ncclAlltoAll", 22800, const void* from, void* to, size_t count, DataType type,    \
    Comm comm, Stream stream)                                                                    \
  X(gather, "ncclGather", 22800, const void* from, void* to, size_t count, DataType type,        \
    int root, Comm comm, Stream stream)                                                          \
  X(scatter, "ncclScatter", 22800, const void* from, void* to, size_t count, DataType type,      \
    int root, Comm comm, Stream stream)                                                          \
  X(putSignal, "ncclPutSignal", 22900, const void* from, size_t count, DataType type, int peer,  \
    Window window, size_t offset, int signal, int context, unsigned flags, Comm comm,            \
    Stream stream)                                                                               \
  X(signal, "ncclSignal", 22900, int peer, int signal, int context, unsigned flags, Comm comm,   \
    Stream stream)

/// A backend's library: by which names it is found, and whose GPUs it drives.
struct Vendor {
  const char* backend;             ///< "nccl"
  const char* label;               ///< "NCCL", as errors spell it
  const char* variable;            ///< configuration variable that names the library's file
  std::vector<const char*> names;  ///< what dlopen is asked for, in this order
  ctran::gpu::Platform platform;
  const char* hint;  ///< what to do when there is no such library
};

/// A loaded library.
struct Library {
#define TORCHCOMMS_MEMBER(name, symbol, ...) Result (*name)(__VA_ARGS__) = nullptr;
  TORCHCOMMS_NCCL_FUNCTIONS(TORCHCOMMS_MEMBER)
#undef TORCHCOMMS_MEMBER
#define TORCHCOMMS_MEMBER(name, symbol, since, ...) Result (*name)(__VA_ARGS__) = nullptr;
  TORCHCOMMS_NCCL_OPTIONAL_FUNCTIONS(TORCHCOMMS_MEMBER)
#undef TORCHCOMMS_MEMBER
  const char* (*getErrorString)(Result result) = nullptr;
  const char* (*getLastError)(Comm comm) = nullptr;

  const Vendor* vendor = nullptr;
  int version = 0;  ///< 22809 is 2.28.9
  std::string path;

  /// The library of a vendor: the file that its configuration variable names, else the one that
  /// this process has loaded (torch's), else by name. Loaded at the first call and kept. Throws
  /// ctran::Error (Unsupported) that says what was tried.
  static const Library& of(const Vendor& vendor);

  std::string versionText() const;  ///< "2.28.9"

  /// Throws ctran::Error (Unsupported) "<what> needs NCCL 2.28 or newer, but this is 2.27.5 (path)"
  /// unless `function`, one of the optional ones, is there.
  template <typename Function>
  void require(Function function, const char* what, int since) const {
    if (!function) [[unlikely]]
      tooOld(what, since);
  }
  [[noreturn]] void tooOld(const char* what, int since) const;
};

/// "2.28.9" of 22809.
std::string spellVersion(int version);

}  // namespace torch::comms::nccl
