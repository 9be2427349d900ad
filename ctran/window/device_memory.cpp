#include "ctran/window/device_memory.h"

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/gpu/discard.h"
#include "ctran/gpu/runtime.h"
#include "ctran/memory/device_segment.h"
#include "ctran/stream/watchdog.h"

namespace ctran {
namespace {

void clear(gpu::DevicePtr address, size_t bytes, int device) {
  const auto& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const gpu::OwnStream stream(runtime, device, /*highPriority=*/false);
  const gpu::Driver& driver = gpu::Driver::get();
  gpu::check(driver.memsetD32Async(address, 0, bytes / sizeof(uint32_t), stream.get()),
             "cuMemsetD32Async");
  gpu::check(driver.streamSynchronize(stream.get()), "cuStreamSynchronize");
}

}  // namespace

std::shared_ptr<void> allocateDeviceMemory(size_t bytes, int device) {
  const gpu::DeviceGuard active(device);
  const auto segment = DeviceSegment::allocate(device, bytes);
  clear(segment->address(), segment->size(), device);
  // Not freed on the thread that lets go last: that may be the watchdog, which has to end what the
  // device waits for.
  return {gpu::pointerTo(segment->address()), [segment](void*) {
            const auto release = [segment] { DeviceSegment::release(segment); };
            try {
              Watchdog::spawn("ctran-free", release);
            } catch (const Error&) {
              release();
            }
          }};
}

std::shared_ptr<void> allocateDeviceWords(size_t words, int device) {
  const gpu::DeviceGuard active(device);
  gpu::DevicePtr address = 0;
  const size_t bytes = std::max<size_t>(words, 1) * sizeof(uint64_t);
  gpu::check(gpu::Driver::get().memAlloc(&address, bytes), "cuMemAlloc");
  std::shared_ptr<void> memory(gpu::pointerTo(address), [device](void* held) {
    gpu::discard(device, [held] { gpu::Driver::get().memFree(gpu::addressOf(held)); });
  });
  clear(address, bytes, device);
  return memory;
}

void writeDeviceWords(void* to, std::span<const uint64_t> content, int device) {
  const gpu::DeviceGuard active(device);
  const auto& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const gpu::OwnStream stream(runtime, device, /*highPriority=*/false);
  const gpu::Driver& driver = gpu::Driver::get();
  gpu::check(driver.memcpyHtoDAsync(gpu::addressOf(to), content.data(), content.size_bytes(),
                                    stream.get()),
             "cuMemcpyHtoDAsync");
  gpu::check(driver.streamSynchronize(stream.get()), "cuStreamSynchronize");
}

}  // namespace ctran
