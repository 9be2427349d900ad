#include <c10/core/Allocator.h>

#include <comms/torchcomms/TorchCommFactory.hpp>
#include <cstring>

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

}  // namespace

}  // namespace torch::comms
