// Compares our declarations of the driver's types with cuda.h, on machines that have one.

#include <gtest/gtest.h>

#include "ctran/base/error.h"
#include "ctran/gpu/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

#include <cstddef>
#include <type_traits>

namespace ctran::gpu {

static_assert(std::is_same_v<DevicePtr, CUdeviceptr>);
static_assert(std::is_same_v<MemoryHandle, CUmemGenericAllocationHandle>);
static_assert(sizeof(MemoryProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(MemoryProperties, handleTypes) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(MemoryProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(MemoryProperties, rdmaCapable) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(sizeof(MemoryAccess) == sizeof(CUmemAccessDesc));
static_assert(offsetof(MemoryAccess, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, sharedBytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, attributeCount) == offsetof(CUlaunchConfig, numAttrs));

static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kEventRecordExternal == CU_EVENT_RECORD_EXTERNAL);
static_assert(kHostPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(kHostDeviceMap == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(kWaitEqual == CU_STREAM_WAIT_VALUE_EQ);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kUserObjectNoSync == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
static_assert(kGraphMoveUserObject == CU_GRAPH_USER_OBJECT_MOVE);
static_assert(kMemoryHandlePosixFd == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kAddressRangeDmaBufFd == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
static_assert(MemoryProperties{}.allocationType == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(MemoryLocation{}.type == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(MemoryAccess{}.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kLaunchAttributePriority == CU_LAUNCH_ATTRIBUTE_PRIORITY);
static_assert(static_cast<int>(DeviceAttribute::ComputeCapabilityMajor) ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(static_cast<int>(DeviceAttribute::ComputeCapabilityMinor) ==
              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(static_cast<int>(DeviceAttribute::MultiprocessorCount) ==
              CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(static_cast<int>(DeviceAttribute::GpuDirectRdma) ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
static_assert(static_cast<int>(DeviceAttribute::GpuDirectRdmaFlushOptions) ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
static_assert(static_cast<int>(DeviceAttribute::GpuDirectRdmaWritesOrdering) ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
static_assert(static_cast<int>(DeviceAttribute::DmaBuf) == CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
static_assert(kFlushByHost == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
static_assert(kOrderedForOwner == CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
static_assert(kFlushCurrentContext == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
static_assert(kFlushToOwner == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
static_assert(static_cast<int>(PeerAttribute::NativeAtomics) ==
              CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
static_assert(static_cast<int>(PointerAttribute::MemoryType) == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(static_cast<int>(PointerAttribute::BufferId) == CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(static_cast<int>(PointerAttribute::DeviceOrdinal) ==
              CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(kMemoryOfDevice == CU_MEMORYTYPE_DEVICE);
static_assert(static_cast<int>(FunctionAttribute::Registers) == CU_FUNC_ATTRIBUTE_NUM_REGS);
static_assert(static_cast<int>(CaptureMode::Relaxed) == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(static_cast<int>(CaptureStatus::Invalidated) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);

}  // namespace ctran::gpu
#endif

namespace ctran::gpu {
namespace {

TEST(DriverTest, IsThereOrSaysWhyNot) {
  try {
    EXPECT_NE(Driver::get().launchKernel, nullptr);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_FALSE(error.hint().empty());
  }
}

}  // namespace
}  // namespace ctran::gpu
