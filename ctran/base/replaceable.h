#pragma once

#include <mutex>
#include <utility>

namespace ctran {

/// A value that one thread at a time reads and replaces, while any others look at it.
template <class Value>
class Replaceable {
 public:
  /// For the thread that may replace it.
  const Value* operator->() const { return &value_; }
  const Value& operator*() const { return value_; }

  /// Returns what it was, which is to be let go of without the lock.
  [[nodiscard]] Value replace(Value next) {
    const std::lock_guard lock(mutex_);
    return std::exchange(value_, std::move(next));
  }

  /// For any thread: `use(value)`, during which it is not replaced. Must not come back here.
  template <class Use>
  auto look(Use use) const {
    const std::lock_guard lock(mutex_);
    return use(value_);
  }

 private:
  mutable std::mutex mutex_;
  Value value_{};
};

}  // namespace ctran
