#include "torchcomms/csrc/backends/gpu/peer_memory.hpp"

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/gpu/runtime.h"

namespace torch::comms::gpu {

namespace {

using ctran::gpu::DeviceGuard;
using ctran::gpu::DevicePtr;
using ctran::gpu::Driver;

constexpr unsigned kEnablePeerAccess = 1;

const Driver& sharingDriver() {
  const Driver& driver = Driver::get();
  if (driver.ipcGetMemHandle && driver.ipcOpenMemHandle && driver.ipcCloseMemHandle &&
      driver.memGetAddressRange) {
    return driver;
  }
  throw ctran::Error(ctran::ErrorKind::Unsupported,
                     "This driver does not share device memory between processes");
}

void* pointer(DevicePtr address) { return reinterpret_cast<void*>(address); }

}  // namespace

SharedRange share(DevicePtr address, size_t bytes) {
  const Driver& driver = sharingDriver();
  SharedRange range;
  range.bytes = bytes;
  if (bytes == 0) return range;
  DevicePtr base = 0;
  size_t size = 0;
  ctran::gpu::check(driver.memGetAddressRange(&base, &size, address), "cuMemGetAddressRange");
  if (const auto result = driver.ipcGetMemHandle(&range.handle, base)) {
    throw ctran::Error(
        ctran::ErrorKind::Unsupported,
        "This memory cannot be mapped by other processes: " + ctran::gpu::describe(result), {},
        "window", "use memory of window_allocate(), or of torch without expandable segments");
  }
  range.offset = address - base;
  return range;
}

std::shared_ptr<void> map(const SharedRange& range, int device) {
  if (range.bytes == 0) return nullptr;
  const Driver& driver = sharingDriver();
  const DeviceGuard active(device);
  DevicePtr base = 0;
  if (const auto result = driver.ipcOpenMemHandle(&base, range.handle, kEnablePeerAccess)) {
    throw ctran::Error(
        ctran::ErrorKind::Unsupported,
        "The memory of another rank cannot be mapped: " + ctran::gpu::describe(result), {},
        "window", "windows need ranks whose GPUs reach each other on one host");
  }
  return {pointer(base + range.offset), [base, device](void*) {
            const DeviceGuard guard(device);
            Driver::get().ipcCloseMemHandle(base);
          }};
}

std::shared_ptr<void> allocate(size_t bytes, int device) {
  const Driver& driver = sharingDriver();
  const DeviceGuard active(device);
  DevicePtr address = 0;
  constexpr size_t kWord = sizeof(uint32_t);
  const size_t words = std::max<size_t>((bytes + kWord - 1) / kWord, 1);
  ctran::gpu::check(driver.memAlloc(&address, words * kWord), "cuMemAlloc");
  std::shared_ptr<void> memory(pointer(address), [device](void* held) {
    const DeviceGuard guard(device);
    Driver::get().memFree(addressOf(held));
  });
  const ctran::gpu::OwnStream stream(ctran::gpu::Runtime::of(ctran::gpu::Platform::Cuda), device,
                                     /*highPriority=*/false);
  ctran::gpu::check(driver.memsetD32Async(address, 0, words, stream.get()), "cuMemsetD32Async");
  ctran::gpu::check(driver.streamSynchronize(stream.get()), "cuStreamSynchronize");
  return memory;
}

}  // namespace torch::comms::gpu
