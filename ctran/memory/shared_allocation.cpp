#include "ctran/memory/shared_allocation.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "ctran/base/error.h"

namespace ctran {
namespace {

struct Allocations {
  std::mutex mutex;
  std::map<std::byte*, std::weak_ptr<SharedAllocation>> byAddress;
};

// Leaked, as allocations may outlive static destruction. A child after fork() starts with a fresh
// one: another thread may have held the mutex, and what the parent exposed is not the child's.
std::atomic<Allocations*> gAllocations{nullptr};
[[maybe_unused]] const int gAllocationsAtFork =
    pthread_atfork(nullptr, nullptr, [] { gAllocations.store(nullptr); });

Allocations& allocations() {
  Allocations* existing = gAllocations.load();
  if (existing != nullptr) return *existing;
  auto* fresh = new Allocations;
  if (gAllocations.compare_exchange_strong(existing, fresh)) return *fresh;
  delete fresh;
  return *existing;
}

}  // namespace

std::shared_ptr<SharedAllocation> SharedAllocation::allocate(size_t bytes) {
  if (bytes > SIZE_MAX - kPage) {
    throw Error(ErrorKind::InvalidArgument, std::to_string(bytes) + " bytes of shared memory");
  }
  const size_t whole = std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
  UniqueFd fd = createSharedMemory("ctran-allocation", whole);
  auto mapping = SharedMapping::map(fd, whole);
  std::shared_ptr<SharedAllocation> fresh(new SharedAllocation(std::move(fd), std::move(mapping)));
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  all.byAddress[fresh->data()] = fresh;
  return fresh;
}

std::shared_ptr<SharedAllocation> SharedAllocation::find(const void* data, size_t bytes) {
  auto* const wanted = static_cast<std::byte*>(const_cast<void*>(data));
  // Let go of after the lock: its destructor takes it, should everybody else have let go meanwhile.
  std::shared_ptr<SharedAllocation> found;
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  const auto after = all.byAddress.upper_bound(wanted);
  if (after == all.byAddress.begin()) return nullptr;
  found = std::prev(after)->second.lock();
  if (!found) return nullptr;
  const auto offset = static_cast<size_t>(wanted - found->data());
  return offset <= found->size() && bytes <= found->size() - offset ? found : nullptr;
}

SharedAllocation::~SharedAllocation() {
  Allocations& all = allocations();
  std::lock_guard lock(all.mutex);
  const auto self = all.byAddress.find(data());
  // The address may be another one's by now only after this mapping has gone, which is later.
  if (self != all.byAddress.end() && self->second.expired()) all.byAddress.erase(self);
}

}  // namespace ctran
