#include "ctran/os/shared_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>

#include "ctran/base/error.h"

namespace ctran {
namespace {

constexpr int kSeals = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

struct Mappings {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<SharedMapping>> byFile;
};

// Leaked: mappings may outlive static destruction. A child after fork() starts with a fresh one, as
// another thread may have held the mutex at that moment.
std::atomic<Mappings*> gMappings{nullptr};
[[maybe_unused]] const int gMappingsAtFork =
    pthread_atfork(nullptr, nullptr, [] { gMappings.store(nullptr); });

Mappings& mappings() {
  Mappings* existing = gMappings.load();
  if (existing != nullptr) return *existing;
  auto* fresh = new Mappings;
  if (gMappings.compare_exchange_strong(existing, fresh)) return *fresh;
  delete fresh;
  return *existing;
}

}  // namespace

UniqueFd createSharedMemory(const char* label, size_t bytes) {
  UniqueFd fd(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw systemError("memfd_create", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) throw systemError("ftruncate", errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) throw systemError("sealing a memfd", errno);
  return fd;
}

size_t sharedMemoryBytes(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw systemError("fstat", errno);
  return static_cast<size_t>(status.st_size);
}

void populate(std::byte* begin, size_t bytes) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / kPage * kPage;
  const size_t length = reinterpret_cast<uintptr_t>(begin) + bytes - first;
  ::madvise(reinterpret_cast<void*>(first), length, kPopulateWrite);
}

std::shared_ptr<SharedMapping> SharedMapping::map(const UniqueFd& fd, size_t bytes) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw systemError("fstat", errno);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || static_cast<size_t>(status.st_size) != bytes) {
    throw Error(ErrorKind::System, "shared memory of an unexpected form was received");
  }
  Mappings& all = mappings();
  std::lock_guard lock(all.mutex);
  std::weak_ptr<SharedMapping>& slot = all.byFile[{status.st_dev, status.st_ino}];
  if (auto existing = slot.lock()) return existing;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) throw systemError("mmap of shared memory", errno);
  std::shared_ptr<SharedMapping> fresh(new SharedMapping(static_cast<std::byte*>(data), bytes));
  slot = fresh;
  std::erase_if(all.byFile, [](const auto& entry) { return entry.second.expired(); });
  return fresh;
}

SharedMapping::~SharedMapping() { ::munmap(data_, size_); }

}  // namespace ctran
