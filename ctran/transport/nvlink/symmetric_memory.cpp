#include "ctran/transport/nvlink/symmetric_memory.h"

#include <algorithm>
#include <cstddef>
#include <thread>

#include "ctran/base/error.h"
#include "ctran/base/log.h"

namespace ctran {
namespace {

using gpu::check;

/// Kernels move sixteen bytes at a time.
constexpr size_t kSymmetricAlignment = 16;
/// How long a capture waits for the others to map what it will use: they look several times a
/// second.
constexpr std::chrono::seconds kMappingPatience{10};
/// Added to the number of a version: the segment could not be mapped.
constexpr uint32_t kRefused = 1u << 31;

bool isPublished(uint32_t version) { return version % 2 == 1; }

}  // namespace

/// A ticket with the number of changes so far: odd while it is valid, even after it was withdrawn.
/// The owner changes it only when all others have seen the change before.
struct SymmetricMemory::Entry {
  DeviceSegment::Ticket ticket;
  std::atomic<uint32_t> version;
  /// The version that a rank has acted upon, and whether.
  std::atomic<uint32_t> seen[device::kMaxRanks];
};

struct SymmetricMemory::Board {
  std::atomic<uint32_t> changes;
  Entry entries[device::kSegments];
};

SymmetricMemory::SymmetricMemory(int rank, int size, int device)
    : rank_(rank), size_(size), device_(device) {}

size_t SymmetricMemory::boardBytes(int size) {
  return (sizeof(Board) * size + kPage - 1) / kPage * kPage;
}

SymmetricMemory::Board& SymmetricMemory::board(int rank) const {
  return reinterpret_cast<Board*>(boards_->data() + offset_)[rank];
}

void SymmetricMemory::connect(std::shared_ptr<SharedMapping> memory, size_t offset,
                              device::State* state) {
  boards_ = std::move(memory);
  offset_ = offset;
  state_ = state;
}

SymmetricMemory::Found SymmetricMemory::look(const void* address, size_t bytes, bool awaits) {
  const auto segment = DeviceSegment::find(address, bytes);
  if (!segment || !boards_) [[likely]]
    return {};
  const size_t offset = gpu::addressOf(address) - segment->address();
  if (offset % kSymmetricAlignment != 0) return {};
  const std::lock_guard lock(mutex_);
  const auto known = own_.find(segment->number());
  Own* own = known != own_.end() ? &known->second : publish(segment);
  if (own == nullptr) return {};
  return {
      progressOf(own->slot), {own->slot + 1, offset}, awaits && !std::exchange(own->awaited, true)};
}

/// Without the lock: the watchdog goes on, perhaps for another rank that waits for this one.
SymmetricMemory::Progress SymmetricMemory::wait(uint32_t slot,
                                                std::chrono::nanoseconds limit) const {
  const auto until = std::chrono::steady_clock::now() + limit;
  Progress progress;
  while ((progress = progressOf(slot)) == Progress::Pending &&
         std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return progress;
}

device::Place SymmetricMemory::find(const void* address, size_t bytes, bool patient) {
  Found found = look(address, bytes, patient);
  if (found.progress == Progress::Pending && found.isFirst) {
    found.progress = wait(found.place.segment - 1, kMappingPatience);
  }
  if (found.progress != Progress::Done) return {};
  found_.fetch_add(1, std::memory_order_relaxed);
  return found.place;
}

device::Place SymmetricMemory::await(const void* address, size_t bytes,
                                     std::chrono::nanoseconds limit) {
  Found found = look(address, bytes, false);
  if (found.progress == Progress::Pending) {
    found.progress = wait(found.place.segment - 1, limit);
  }
  return found.progress == Progress::Done ? found.place : device::Place{};
}

std::shared_ptr<gpu::DeviceMemory> SymmetricMemory::mappingOf(int peer, uint32_t segment) const {
  const std::lock_guard lock(mutex_);
  return mappings_[peer][segment - 1];
}

size_t SymmetricMemory::mapped() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(own_.begin(), own_.end(), [&](const auto& one) {
    return progressOf(one.second.slot) == Progress::Done;
  }));
}

SymmetricMemory::Progress SymmetricMemory::progressOf(uint32_t slot) const {
  const Entry& entry = board(rank_).entries[slot];
  const uint32_t version = entry.version.load(std::memory_order_relaxed);
  bool refused = false;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const uint32_t seen = entry.seen[r].load(std::memory_order_acquire);
    if ((seen & ~kRefused) != version) return Progress::Pending;
    refused = refused || (seen & kRefused) != 0;
  }
  return refused ? Progress::Refused : Progress::Done;
}

/// Null where there is no room, or it cannot be shared.
SymmetricMemory::Own* SymmetricMemory::publish(const std::shared_ptr<DeviceSegment>& segment) {
  Board& own = board(rank_);
  for (uint32_t slot = 0; slot < device::kSegments; ++slot) {
    Entry& entry = own.entries[slot];
    const uint32_t version = entry.version.load(std::memory_order_relaxed);
    if (isPublished(version) || progressOf(slot) == Progress::Pending) continue;
    try {
      entry.ticket = segment->ticket();
    } catch (const Error& error) {
      log(LogComponent::Transport, LogLevel::Debug, "a segment of GPU memory cannot be shared: %s",
          error.what());
      return nullptr;
    }
    entry.version.store((version + 1) & ~kRefused, std::memory_order_release);
    own.changes.fetch_add(1, std::memory_order_release);
    return &(own_[segment->number()] = {segment, slot, false});
  }
  return nullptr;
}

void SymmetricMemory::withdraw() {
  const std::lock_guard lock(mutex_);
  for (auto one = own_.begin(); one != own_.end();) {
    if (!one->second.segment.expired()) {
      ++one;
      continue;
    }
    Entry& entry = board(rank_).entries[one->second.slot];
    entry.version.store(entry.version.load(std::memory_order_relaxed) + 1,
                        std::memory_order_release);
    board(rank_).changes.fetch_add(1, std::memory_order_release);
    one = own_.erase(one);
  }
}

void SymmetricMemory::serve() {
  if (!boards_) return;
  withdraw();
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) follow(r);
  }
}

void SymmetricMemory::follow(int peer) {
  Board& theirs = board(peer);
  const uint32_t changes = theirs.changes.load(std::memory_order_acquire);
  if (changes == followed_[peer]) return;
  for (uint32_t slot = 0; slot < device::kSegments; ++slot) {
    Entry& entry = theirs.entries[slot];
    const uint32_t version = entry.version.load(std::memory_order_acquire);
    if (version == seen_[peer][slot]) continue;
    seen_[peer][slot] = version;
    uint32_t answer = version;
    try {
      keep(peer, slot, nullptr);
      if (isPublished(version)) keep(peer, slot, map(peer, slot, entry.ticket));
    } catch (const std::exception& error) {
      log(LogComponent::Transport, LogLevel::Debug, "memory of rank %d is not mapped: %s", peer,
          error.what());
      answer |= kRefused;
    }
    entry.seen[rank_].store(answer, std::memory_order_release);
    // A rank that does not answer costs a second each time: the rest is for the next turn, as the
    // caller looks at deadlines in between.
    if ((answer & kRefused) != 0) return;
  }
  followed_[peer] = changes;
}

/// What there was is unmapped after the lock.
void SymmetricMemory::keep(int peer, uint32_t slot, std::shared_ptr<gpu::DeviceMemory> mapping) {
  const std::lock_guard lock(mutex_);
  mappings_[peer][slot].swap(mapping);
}

std::shared_ptr<gpu::DeviceMemory> SymmetricMemory::map(int peer, uint32_t slot,
                                                        const DeviceSegment::Ticket& ticket) {
  const gpu::Runtime& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const gpu::DeviceGuard guard(device_);
  const gpu::RelaxedCapture relaxed(runtime);
  auto mapping = DeviceSegment::open(ticket, device_);
  if (!stream_) stream_.emplace(runtime, device_, /*highPriority=*/true);
  const uint64_t address = mapping->address();
  check(gpu::Driver::get().memcpyHtoDAsync(gpu::addressOf(&state_->mapped[peer][slot]), &address,
                                           sizeof address, stream_->get()),
        "cuMemcpyHtoDAsync");
  check(gpu::Driver::get().streamSynchronize(stream_->get()), "cuStreamSynchronize");
  return mapping;
}

}  // namespace ctran
