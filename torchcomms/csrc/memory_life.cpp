#include "torchcomms/csrc/memory_life.hpp"

#include <c10/core/CPUAllocator.h>

#include <mutex>

namespace torch::comms {

namespace {

/// What a storage holds in place of its memory.
struct Watched {
  c10::DataPtr memory;
  std::shared_ptr<void> life;  // after `memory`: it ends first
};

void releaseWatched(void* watched) { delete static_cast<Watched*>(watched); }

}  // namespace

bool isOfCpuAllocator(const c10::StorageImpl& storage) {
  const c10::DeleterFnPtr usual = c10::GetCPUAllocator()->raw_deleter();
  const c10::DeleterFnPtr deleter = storage.data_ptr().get_deleter();
  return deleter == &releaseWatched || (usual != nullptr && deleter == usual);
}

std::weak_ptr<void> lifeOfMemory(const at::Tensor& tensor) {
  static std::mutex mutex;  // two threads may ask for one storage's
  static const std::shared_ptr<void> endless = std::make_shared<bool>();
  const std::lock_guard lock(mutex);
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (!isOfCpuAllocator(*storage) || storage->nbytes() == 0) return endless;
  const c10::DataPtr& there = storage->data_ptr();
  if (auto* const watched = there.cast_context<Watched>(&releaseWatched)) return watched->life;
  void* const data = there.get();
  const c10::Device device = there.device();
  auto life = std::make_shared<bool>();
  auto watched = std::make_unique<Watched>(Watched{{}, life});
  watched->memory = storage->set_data_ptr({data, nullptr, nullptr, device});
  storage->set_data_ptr_noswap({data, watched.release(), &releaseWatched, device});
  return life;
}

}  // namespace torch::comms
