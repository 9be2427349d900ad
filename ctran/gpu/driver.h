#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

/// The CUDA driver as one table of typed function pointers, found with dlopen when it is first
/// asked for. Nothing here needs a CUDA header: the types below match the driver's binary
/// interface, and `tests/unit/gpu/driver_abi_test.cpp` compares them with cuda.h where one is
/// installed.
namespace ctran::gpu {

using Result = int;  // CUresult
using Device = int;
using DevicePtr = unsigned long long;
using MemoryHandle = unsigned long long;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
/// CU_STREAM_PER_THREAD, hipStreamPerThread: one handle on all threads, which stands for a stream
/// of each thread.
inline const Stream kStreamPerThread = reinterpret_cast<Stream>(2);
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Graph = struct GraphTag*;
using GraphNode = struct GraphNodeTag*;
using GraphExec = struct GraphExecTag*;
using UserObject = struct UserObjectTag*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kAlreadyMapped = 208;
inline constexpr Result kNotReady = 600;
inline constexpr Result kNotSupported = 801;

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kEventRecordExternal = 1;
inline constexpr unsigned kUserObjectNoSync = 1;
inline constexpr unsigned kGraphMoveUserObject = 1;
inline constexpr unsigned kHostPortable = 1;
inline constexpr unsigned kHostDeviceMap = 2;
inline constexpr unsigned kWaitEqual = 1;

enum class DeviceAttribute : int {
  MultiprocessorCount = 16,
  PciBusId = 33,
  PciDeviceId = 34,
  PciDomainId = 50,
  ComputeCapabilityMajor = 75,
  ComputeCapabilityMinor = 76,
  VirtualMemoryManagement = 102,
  PosixFdHandles = 103,
  GpuDirectRdma = 116,
  GpuDirectRdmaFlushOptions = 117,
  GpuDirectRdmaWritesOrdering = 118,
  DmaBuf = 124,
};

enum class PointerAttribute : int {
  MemoryType = 2,
  BufferId = 7,
  DeviceOrdinal = 9,
};
inline constexpr unsigned kMemoryOfDevice = 2;

enum class PeerAttribute : int {
  PerformanceRank = 1,
  AccessSupported = 2,
  NativeAtomics = 3,
};

enum class FunctionAttribute : int {
  MaxThreadsPerBlock = 0,
  SharedBytes = 1,
  LocalBytes = 3,
  Registers = 4,
  MaxDynamicSharedBytes = 8,
};

enum class CaptureMode : int { Global = 0, ThreadLocal = 1, Relaxed = 2 };
enum class CaptureStatus : int { None = 0, Active = 1, Invalidated = 2 };

struct IpcHandle {
  char bytes[64];
};

struct MemoryLocation {
  int type = 1;  // a device
  int id = 0;
};

struct MemoryProperties {
  int allocationType = 1;  // pinned
  int handleTypes = 1;     // POSIX file descriptor
  MemoryLocation location;
  void* reservedForWindows = nullptr;
  unsigned char compression = 0;
  unsigned char rdmaCapable = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};

struct MemoryAccess {
  MemoryLocation location;
  int flags = 3;  // read and write
};

inline constexpr int kMemoryHandlePosixFd = 1;
inline constexpr int kAddressRangeDmaBufFd = 1;

// Flush of GPUDirect RDMA writes. kFlushByHost is a bit of GpuDirectRdmaFlushOptions:
// flushGPUDirectRDMAWrites can flush. kOrderedForOwner is the least value of
// GpuDirectRdmaWritesOrdering at which the device itself sees remote writes in order. The last two
// are arguments of flushGPUDirectRDMAWrites: what is flushed, and for whom.
inline constexpr int kFlushByHost = 1;
inline constexpr int kOrderedForOwner = 100;
inline constexpr int kFlushCurrentContext = 0;
inline constexpr int kFlushToOwner = 100;

struct LaunchAttribute {
  int id = 0;
  int pad = 0;
  union {
    unsigned char bytes[64];
    int number;
  } value = {};
};

inline constexpr int kLaunchAttributePriority = 8;

struct LaunchConfig {
  unsigned gridX = 1, gridY = 1, gridZ = 1;
  unsigned blockX = 1, blockY = 1, blockZ = 1;
  unsigned sharedBytes = 0;
  Stream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attributeCount = 0;
};

// X(member, exported symbol, parameters...). Symbols carry their version: a table filled from
// libcuda directly means the same on every driver from 11.4 on.
#define CTRAN_CUDA_FUNCTIONS(X)                                                                    \
  X(init, "cuInit", unsigned flags)                                                                \
  X(driverGetVersion, "cuDriverGetVersion", int* version)                                          \
  X(getErrorString, "cuGetErrorString", Result result, const char** text)                          \
  X(getErrorName, "cuGetErrorName", Result result, const char** text)                              \
  X(deviceGetCount, "cuDeviceGetCount", int* count)                                                \
  X(deviceGet, "cuDeviceGet", Device* device, int ordinal)                                         \
  X(deviceGetName, "cuDeviceGetName", char* name, int length, Device device)                       \
  X(deviceGetAttribute, "cuDeviceGetAttribute", int* value, DeviceAttribute which, Device device)  \
  X(deviceCanAccessPeer, "cuDeviceCanAccessPeer", int* can, Device device, Device peer)            \
  X(deviceGetP2PAttribute, "cuDeviceGetP2PAttribute", int* value, PeerAttribute which,             \
    Device device, Device peer)                                                                    \
  X(devicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", Context* context, Device device)           \
  X(devicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", Device device)                        \
  X(ctxSetCurrent, "cuCtxSetCurrent", Context context)                                             \
  X(ctxGetCurrent, "cuCtxGetCurrent", Context* context)                                            \
  X(ctxGetDevice, "cuCtxGetDevice", Device* device)                                                \
  X(ctxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", int* least, int* greatest)           \
  X(ctxSynchronize, "cuCtxSynchronize")                                                            \
  X(memGetAllocationGranularity, "cuMemGetAllocationGranularity", size_t* bytes,                   \
    const MemoryProperties* properties, int option)                                                \
  X(memCreate, "cuMemCreate", MemoryHandle* handle, size_t bytes,                                  \
    const MemoryProperties* properties, unsigned long long flags)                                  \
  X(memRelease, "cuMemRelease", MemoryHandle handle)                                               \
  X(memRetainAllocationHandle, "cuMemRetainAllocationHandle", MemoryHandle* handle, void* address) \
  X(memAddressReserve, "cuMemAddressReserve", DevicePtr* address, size_t bytes, size_t alignment,  \
    DevicePtr fixed, unsigned long long flags)                                                     \
  X(memAddressFree, "cuMemAddressFree", DevicePtr address, size_t bytes)                           \
  X(memMap, "cuMemMap", DevicePtr address, size_t bytes, size_t offset, MemoryHandle handle,       \
    unsigned long long flags)                                                                      \
  X(memUnmap, "cuMemUnmap", DevicePtr address, size_t bytes)                                       \
  X(memSetAccess, "cuMemSetAccess", DevicePtr address, size_t bytes, const MemoryAccess* access,   \
    size_t count)                                                                                  \
  X(memExportToShareableHandle, "cuMemExportToShareableHandle", void* shareable,                   \
    MemoryHandle handle, int type, unsigned long long flags)                                       \
  X(memImportFromShareableHandle, "cuMemImportFromShareableHandle", MemoryHandle* handle,          \
    void* shareable, int type)                                                                     \
  X(memAlloc, "cuMemAlloc_v2", DevicePtr* address, size_t bytes)                                   \
  X(memFree, "cuMemFree_v2", DevicePtr address)                                                    \
  X(memHostAlloc, "cuMemHostAlloc", void** address, size_t bytes, unsigned flags)                  \
  X(memFreeHost, "cuMemFreeHost", void* address)                                                   \
  X(memHostRegister, "cuMemHostRegister_v2", void* address, size_t bytes, unsigned flags)          \
  X(memHostUnregister, "cuMemHostUnregister", void* address)                                       \
  X(memHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", DevicePtr* device, void* host,        \
    unsigned flags)                                                                                \
  X(pointerGetAttribute, "cuPointerGetAttribute", void* value, PointerAttribute which,             \
    DevicePtr address)                                                                             \
  X(memcpyAsync, "cuMemcpyAsync", DevicePtr to, DevicePtr from, size_t bytes, Stream stream)       \
  X(memcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", void* to, DevicePtr from, size_t bytes,               \
    Stream stream)                                                                                 \
  X(memcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", DevicePtr to, const void* from, size_t bytes,         \
    Stream stream)                                                                                 \
  X(memsetD32Async, "cuMemsetD32Async", DevicePtr to, unsigned value, size_t words, Stream stream) \
  X(streamCreateWithPriority, "cuStreamCreateWithPriority", Stream* stream, unsigned flags,        \
    int priority)                                                                                  \
  X(streamDestroy, "cuStreamDestroy_v2", Stream stream)                                            \
  X(streamSynchronize, "cuStreamSynchronize", Stream stream)                                       \
  X(streamQuery, "cuStreamQuery", Stream stream)                                                   \
  X(streamWaitEvent, "cuStreamWaitEvent", Stream stream, Event event, unsigned flags)              \
  X(streamIsCapturing, "cuStreamIsCapturing", Stream stream, CaptureStatus* status)                \
  X(streamGetCaptureInfo, "cuStreamGetCaptureInfo_v2", Stream stream, CaptureStatus* status,       \
    uint64_t* id, Graph* graph, const GraphNode** dependencies, size_t* dependencyCount)           \
  X(streamBeginCapture, "cuStreamBeginCapture_v2", Stream stream, CaptureMode mode)                \
  X(streamEndCapture, "cuStreamEndCapture", Stream stream, Graph* graph)                           \
  X(threadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", CaptureMode* mode)       \
  X(eventCreate, "cuEventCreate", Event* event, unsigned flags)                                    \
  X(eventDestroy, "cuEventDestroy_v2", Event event)                                                \
  X(eventRecord, "cuEventRecord", Event event, Stream stream)                                      \
  X(eventRecordWithFlags, "cuEventRecordWithFlags", Event event, Stream stream, unsigned flags)    \
  X(eventQuery, "cuEventQuery", Event event)                                                       \
  X(eventSynchronize, "cuEventSynchronize", Event event)                                           \
  X(eventElapsedTime, "cuEventElapsedTime", float* milliseconds, Event start, Event end)           \
  X(moduleLoadData, "cuModuleLoadData", Module* module, const void* image)                         \
  X(moduleUnload, "cuModuleUnload", Module module)                                                 \
  X(moduleGetFunction, "cuModuleGetFunction", Function* function, Module module, const char* name) \
  X(funcGetAttribute, "cuFuncGetAttribute", int* value, FunctionAttribute which,                   \
    Function function)                                                                             \
  X(funcSetAttribute, "cuFuncSetAttribute", Function function, FunctionAttribute which, int value) \
  X(launchKernel, "cuLaunchKernel", Function function, unsigned gridX, unsigned gridY,             \
    unsigned gridZ, unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,       \
    Stream stream, void** parameters, void** extra)                                                \
  X(launchKernelEx, "cuLaunchKernelEx", const LaunchConfig* config, Function function,             \
    void** parameters, void** extra)                                                               \
  X(launchHostFunc, "cuLaunchHostFunc", Stream stream, void (*function)(void*), void* argument)    \
  X(graphInstantiate, "cuGraphInstantiateWithFlags", GraphExec* executable, Graph graph,           \
    unsigned long long flags)                                                                      \
  X(graphLaunch, "cuGraphLaunch", GraphExec executable, Stream stream)                             \
  X(graphExecDestroy, "cuGraphExecDestroy", GraphExec executable)                                  \
  X(graphDestroy, "cuGraphDestroy", Graph graph)                                                   \
  X(userObjectCreate, "cuUserObjectCreate", UserObject* object, void* value,                       \
    void (*destroy)(void*), unsigned references, unsigned flags)                                   \
  X(graphRetainUserObject, "cuGraphRetainUserObject", Graph graph, UserObject object,              \
    unsigned count, unsigned flags)

// X(member, exported symbol, parameters...): null where the driver is older than 11.7.
#define CTRAN_CUDA_OPTIONAL_FUNCTIONS(X)                                                           \
  X(streamWriteValue32, "cuStreamWriteValue32_v2", Stream stream, DevicePtr address,               \
    uint32_t value, unsigned flags)                                                                \
  X(streamWaitValue32, "cuStreamWaitValue32_v2", Stream stream, DevicePtr address, uint32_t value, \
    unsigned flags)                                                                                \
  X(memGetAddressRange, "cuMemGetAddressRange_v2", DevicePtr* base, size_t* bytes,                 \
    DevicePtr address)                                                                             \
  X(ipcGetMemHandle, "cuIpcGetMemHandle", IpcHandle* handle, DevicePtr address)                    \
  X(ipcOpenMemHandle, "cuIpcOpenMemHandle_v2", DevicePtr* address, IpcHandle handle,               \
    unsigned flags)                                                                                \
  X(ipcCloseMemHandle, "cuIpcCloseMemHandle", DevicePtr address)                                   \
  X(memGetHandleForAddressRange, "cuMemGetHandleForAddressRange", void* handle, DevicePtr address, \
    size_t bytes, int type, unsigned long long flags)                                              \
  X(flushGPUDirectRDMAWrites, "cuFlushGPUDirectRDMAWrites", int target, int scope)

/// The table of functions. A function that this driver lacks makes the filling of the table throw
/// Error(Unsupported), which names it and the driver's version.
struct Driver {
#define CTRAN_MEMBER(name, symbol, ...) Result (*name)(__VA_ARGS__) = nullptr;
  CTRAN_CUDA_FUNCTIONS(CTRAN_MEMBER)
  CTRAN_CUDA_OPTIONAL_FUNCTIONS(CTRAN_MEMBER)
#undef CTRAN_MEMBER

  /// Returns the stream that is current for tensors in host memory. Only a stand-in for tests has
  /// this function; it is null otherwise.
  Stream (*currentHostStream)() = nullptr;

  /// Returns the driver of this process, loaded and initialised at the first call. Throws
  /// Error(Unsupported) if there is no libcuda or no usable GPU, and tries again at the next call.
  static const Driver& get();

  /// Returns the driver without loading anything: null in a process that has not used a GPU.
  static const Driver* ifLoaded();
};

/// Describes a result: "CUDA_ERROR_INVALID_VALUE (1): invalid argument".
std::string describe(Result result);

/// Throws Error(System, "what: <describe(result)>") unless `result` is success.
void check(Result result, const char* what);

inline DevicePtr addressOf(const void* memory) { return reinterpret_cast<DevicePtr>(memory); }
inline void* pointerTo(DevicePtr address) { return reinterpret_cast<void*>(address); }

/// Enqueues a copy between any memory that the device reaches.
void copyAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream stream);

/// Makes a device's primary context current on this thread while it lives, and the previous one
/// afterwards. The primary context is the one that torch uses; it is retained once per process.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  Context previous_ = nullptr;
  bool changed_ = false;
};

/// Returns the driver's handle of a device.
Device deviceHandle(int device);

int attributeOf(Device device, DeviceAttribute which);

/// Where a device is on the PCI bus: domain, bus, device.
std::array<unsigned, 3> pciAddress(Device device);

/// Returns the exact architecture of a device as compilers spell it: "sm_90".
std::string architecture(int device);

/// Returns the name of a device: "NVIDIA H200".
std::string deviceName(int device);

int deviceCount();

/// Returns the device that is current on this thread; none if no context is.
std::optional<int> currentDevice();

/// Returns the device that has the memory at an address; none for the host's. It neither starts the
/// driver nor needs a current device: without CUDA in this process, all memory is the host's.
std::optional<int> deviceOf(const void* address);

}  // namespace ctran::gpu
