#include "exposed.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "host.h"

namespace mscclpp {

struct Exposed::Entry {
  char* data;
  uint64_t size;
  TransportFlags transports;
  int gpu;
  uint64_t process;  // that exposes it: after a fork the child exposes nothing

  std::mutex mutex;  // guards what follows
  std::condition_variable written;
  bool isGone = false;
  std::multiset<std::atomic<bool>*> writers;
};

namespace {

/// How long a write that is under way may go on when its memory goes.
constexpr std::chrono::milliseconds kGrace{1000};

struct Table {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Exposed::Entry>> byId;
};
// Never destroyed: service threads may look at it while the process ends.
Table& table() {
  static auto& one = *new Table;
  return one;
}

uint64_t randomId() {
  uint64_t id = 0;
  while (id == 0) fillRandom(&id, sizeof id);
  return id;
}

std::shared_ptr<Exposed::Entry> find(uint64_t id) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  const auto found = all.byId.find(id);
  if (found == all.byId.end() || found->second->process != ownProcessToken()) return nullptr;
  return found->second;
}

}  // namespace

Exposed::Exposed(char* data, uint64_t size, TransportFlags transports, int gpu)
    : id_(randomId()),
      entry_(new Entry{data, size, transports, gpu, ownProcessToken(), {}, {}, false, {}}) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  all.byId[id_] = entry_;
}

Exposed::~Exposed() {
  if (entry_->process != ownProcessToken()) return;  // threads that write are the parent's
  {
    Table& all = table();
    const std::lock_guard lock(all.mutex);
    all.byId.erase(id_);
  }
  std::unique_lock lock(entry_->mutex);
  entry_->isGone = true;
  const auto isIdle = [this] { return entry_->writers.empty(); };
  if (entry_->written.wait_for(lock, kGrace, isIdle)) return;
  for (std::atomic<bool>* const breakOff : entry_->writers) breakOff->store(true);
  entry_->written.wait(lock, isIdle);
}

Placement::Placement(uint64_t id, uint64_t offset, uint64_t size, Transport transport,
                     std::atomic<bool>& breakOff)
    : entry_(find(id)), breakOff_(breakOff) {
  const std::string part = "bytes " + std::to_string(offset) + " and " + std::to_string(size) +
                           " from there on of memory ";
  if (!entry_) {
    throw Error(part + "that is not registered any more, or never was", ErrorCode::InvalidUsage);
  }
  const std::lock_guard lock(entry_->mutex);
  if (entry_->isGone) {
    throw Error(part + "that is not registered any more", ErrorCode::InvalidUsage);
  }
  if (!entry_->transports.has(transport)) {
    throw Error(part + "that is not registered for " + to_string(transport),
                ErrorCode::InvalidUsage);
  }
  if (offset > entry_->size || size > entry_->size - offset) {
    throw Error(part + "that has " + std::to_string(entry_->size), ErrorCode::InvalidUsage);
  }
  data_ = entry_->data + offset;
  entry_->writers.insert(&breakOff_);
}

Placement::~Placement() {
  const std::lock_guard lock(entry_->mutex);
  entry_->writers.erase(entry_->writers.find(&breakOff_));
  entry_->written.notify_all();
}

int Placement::gpu() const { return entry_->gpu; }

}  // namespace mscclpp
