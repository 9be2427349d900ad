#include "torchcomms/csrc/backends/gpu/peer_memory.hpp"

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/gpu/runtime.h"
#include "ctran/stream/watchdog.h"

namespace torch::comms::gpu {

namespace {

using ctran::gpu::DeviceGuard;
using ctran::gpu::DevicePtr;
using ctran::gpu::Driver;

/// For destructors: of a device that is lost, or not this process's, all has gone anyway.
template <class Body>
void onDevice(int device, const Body& body) {
  try {
    const DeviceGuard guard(device);
    body();
  } catch (const ctran::Error& error) {
    ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Debug, "memory was not freed: %s",
               error.what());
  }
}

void* pointer(DevicePtr address) { return reinterpret_cast<void*>(address); }

void clear(DevicePtr address, size_t bytes, int device) {
  const auto& runtime = ctran::gpu::Runtime::of(ctran::gpu::Platform::Cuda);
  const ctran::gpu::OwnStream stream(runtime, device, /*highPriority=*/false);
  const Driver& driver = Driver::get();
  ctran::gpu::check(driver.memsetD32Async(address, 0, bytes / sizeof(uint32_t), stream.get()),
                    "cuMemsetD32Async");
  ctran::gpu::check(driver.streamSynchronize(stream.get()), "cuStreamSynchronize");
}

}  // namespace

std::shared_ptr<void> allocate(size_t bytes, int device) {
  const DeviceGuard active(device);
  const auto segment = ctran::DeviceSegment::allocate(device, bytes);
  clear(segment->address(), segment->size(), device);
  // Not on whatever thread lets go last: that may be the watchdog, which has to end what the device
  // waits for.
  return {pointer(segment->address()), [segment](void*) {
            const auto release = [segment] { ctran::DeviceSegment::release(segment); };
            try {
              ctran::Watchdog::spawn("ctran-free", release);
            } catch (const ctran::Error&) {
              release();
            }
          }};
}

std::shared_ptr<void> allocateWords(size_t words, int device) {
  const Driver& driver = Driver::get();
  const DeviceGuard active(device);
  DevicePtr address = 0;
  const size_t bytes = std::max<size_t>(words, 1) * sizeof(uint64_t);
  ctran::gpu::check(driver.memAlloc(&address, bytes), "cuMemAlloc");
  std::shared_ptr<void> memory(pointer(address), [device](void* held) {
    onDevice(device, [&] { Driver::get().memFree(addressOf(held)); });
  });
  clear(address, bytes, device);
  return memory;
}

}  // namespace torch::comms::gpu
