// Memory that other processes of the host can map: of the CPU, as an allocator of torch's, and of
// GPUs, as the functions that a torch.cuda.memory.CUDAPluggableAllocator asks for.
// torchcomms/_gpu_memory.py hands those over.

#include <c10/core/Allocator.h>
#include <sys/types.h>

#include <chrono>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/gpu/runtime.h"
#include "ctran/memory/device_segment.h"
#include "ctran/memory/shared_allocation.h"

namespace torch::comms {

namespace {

/// Page-aligned memory that the other ranks of the host can map.
class SharedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    // The allocation is held by the tensor's storage, and by whoever has mapped it.
    auto memory = ctran::SharedAllocation::allocate(bytes);
    void* data = memory->data();
    auto* held = new std::shared_ptr<ctran::SharedAllocation>(std::move(memory));
    return {data, held, &release, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* destination, const void* source, size_t count) const override {
    std::memcpy(destination, source, count);
  }

 private:
  static void release(void* held) {
    delete static_cast<std::shared_ptr<ctran::SharedAllocation>*>(held);
  }
};

struct Registration {
  Registration() {
    TorchCommFactory::get().register_allocator_factory(
        "ctran", [] { return std::make_shared<SharedAllocator>(); });
  }
} const kRegistration;

using Clock = std::chrono::steady_clock;

/// So long after it was freed, other processes may still have a segment mapped.
constexpr std::chrono::seconds kUnmapping{2};
constexpr std::chrono::milliseconds kPause{10};

/// What has been given away. Never destroyed: tensors may outlive static objects.
struct Segments {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<ctran::DeviceSegment>> held;
  Clock::time_point freed{};  ///< the last of those that are not held any more
};

Segments& segments() {
  static Segments& all = *new Segments;
  return all;
}

/// Null where there is no memory left: torch then frees what it can, and asks again.
void* allocateSegment(size_t bytes, int device) {
  const ctran::gpu::RelaxedCapture relaxed(ctran::gpu::Runtime::of(ctran::gpu::Platform::Cuda));
  Segments& all = segments();
  while (true) {
    try {
      auto segment = ctran::DeviceSegment::allocate(device, bytes);
      void* const address = reinterpret_cast<void*>(segment->address());
      const std::lock_guard lock(all.mutex);
      all.held[address] = std::move(segment);
      return address;
    } catch (const ctran::Error& error) {
      const std::lock_guard lock(all.mutex);
      if (Clock::now() - all.freed > kUnmapping) {
        ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Debug, "no memory for a pool: %s",
                   error.what());
        return nullptr;
      }
    }
    std::this_thread::sleep_for(kPause);
  }
}

void freeSegment(void* address) noexcept {
  std::shared_ptr<ctran::DeviceSegment> last;
  {
    Segments& all = segments();
    const std::lock_guard lock(all.mutex);
    const auto found = all.held.find(address);
    if (found == all.held.end()) return;
    last = std::move(found->second);
    all.held.erase(found);
  }
  ctran::DeviceSegment::release(std::move(last));
  const std::lock_guard lock(segments().mutex);
  segments().freed = Clock::now();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* torchcomms_ctran_allocate(
    ssize_t bytes, int device, ctran::gpu::Stream) {
  return allocateSegment(static_cast<size_t>(bytes), device);
}

extern "C" __attribute__((visibility("default"))) void torchcomms_ctran_free(void* address, ssize_t,
                                                                             int,
                                                                             ctran::gpu::Stream) {
  freeSegment(address);
}

}  // namespace torch::comms
