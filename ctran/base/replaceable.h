#pragma once

#include <mutex>
#include <utility>

namespace ctran {

/// A value that one thread at a time reads and replaces, while any other threads look at it.
template <class Value>
class Replaceable {
 public:
  /// Only the thread that may replace the value calls these.
  const Value* operator->() const { return &value_; }
  const Value& operator*() const { return value_; }

  /// Replaces the value. Returns the old one, which has to be destroyed without the lock.
  [[nodiscard]] Value replace(Value next) {
    const std::lock_guard lock(mutex_);
    return std::exchange(value_, std::move(next));
  }

  /// Calls `use(value)` on any thread; the value is not replaced meanwhile. `use` must not call
  /// this object.
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
