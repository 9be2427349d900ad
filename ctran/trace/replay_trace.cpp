#include "ctran/trace/replay_trace.h"

namespace ctran {
namespace {

thread_local std::shared_ptr<ReplayTrace> tMade;

}  // namespace

std::shared_ptr<ReplayTrace> ReplayTrace::make() { return tMade = std::make_shared<ReplayTrace>(); }

std::shared_ptr<ReplayTrace> ReplayTrace::take() { return std::exchange(tMade, nullptr); }

void ReplayTrace::write(std::shared_ptr<Recording> recording, std::vector<Call> calls) {
  const std::lock_guard lock(mutex_);
  recording_ = std::move(recording);
  recording_->tellsReplays();
  calls_ = std::move(calls);
}

void ReplayTrace::began(uint64_t at) {
  const std::lock_guard lock(mutex_);
  begin(at);
}

void ReplayTrace::ended(uint64_t since, uint64_t at) {
  const std::lock_guard lock(mutex_);
  if (!runs_) begin(since);
  for (const uint64_t position : running_) {
    RecordSlot& slot = recording_->replay(position);
    if (slot.version.load(std::memory_order_relaxed) == position + 1) {
      slot.endedAt.store(at, std::memory_order_release);
    }
  }
  running_.clear();
  runs_ = false;
}

void ReplayTrace::begin(uint64_t at) {
  runs_ = true;
  for (const Call& call : calls_) {
    uint64_t position = 0;
    RecordSlot& slot = recording_->beginReplay(position);
    if (!recording_->isOn()) continue;
    running_.push_back(position);
    const auto set = [](RecordSlot::Word& word, uint64_t value) {
      word.store(value, std::memory_order_relaxed);
    };
    slot.version.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    set(slot.what, call.what);
    set(slot.count, call.count);
    set(slot.bytes, call.bytes);
    set(slot.calledAt, at);
    set(slot.startedAt, at);
    set(slot.tag, call.number << 1 | (call.isMessage ? 1 : 0));
    set(slot.choice, call.choice);
    set(slot.endedAt, 0);  // what else there is nobody knows: it is 0 in all slots of this ring
    slot.version.store(position + 1, std::memory_order_release);
  }
}

}  // namespace ctran
