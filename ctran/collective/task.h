#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

#include "ctran/transport/condition.h"

namespace ctran {

/// Memory for the coroutine frame of the one operation that a queue runs at a time, so that
/// starting an operation allocates nothing.
class FrameMemory {
 public:
  static constexpr size_t kBytes = 2048;
  void* get() { return bytes_; }

 private:
  alignas(std::max_align_t) std::byte bytes_[kBytes];
};

/// A running operation: a coroutine that says what it waits for (`co_await condition`). The thread
/// that drives its queue resumes it when that holds. Its first parameter is a context with a member
/// `frame` of type FrameMemory.
class Task {
 public:
  /// Awaits `step` while `other` progresses, too. `other` may still run when `step` has ended.
  struct Overlapping {
    Task& step;
    Task& other;
  };

  struct promise_type {
    Condition waiting;
    Task* step = nullptr;         ///< the step that it waits for instead of `waiting`, if any
    Task* overlapping = nullptr;  ///< the task that progresses meanwhile
    std::exception_ptr error;

    template <class Context, class... Rest>
    static void* operator new(size_t size, Context& context, Rest&&...) {
      return size <= FrameMemory::kBytes ? context.frame.get() : ::operator new(size);
    }
    static void operator delete(void* frame, size_t size) {
      if (size > FrameMemory::kBytes) ::operator delete(frame);
    }

    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }

    struct Awaiter {
      promise_type& promise;
      bool await_ready() { return promise.waiting.holds(); }
      void await_suspend(std::coroutine_handle<>) {}
      void await_resume() {}
    };
    Awaiter await_transform(const Condition& condition) {
      waiting = condition;
      return {*this};
    }

    /// Awaits an object that has a condition; calls its `check()` when the condition holds.
    template <class Event>
    struct EventAwaiter : Awaiter {
      Event& event;
      void await_resume() { event.check(); }
    };
    template <class Event>
    auto await_transform(Event& event) -> EventAwaiter<Event>
    requires requires { event.check(); }
    {
      waiting = event.condition();
      return {{*this}, event};
    }

    /// Awaits a step of this operation, which is a task on a context of its own. Throws what it
    /// threw.
    struct StepAwaiter {
      promise_type& promise;
      Task& step;
      Task* overlapping;
      bool await_ready() { return step.done(); }
      void await_suspend(std::coroutine_handle<>) {
        promise.step = &step;
        promise.overlapping = overlapping;
      }
      void await_resume() {
        promise.step = promise.overlapping = nullptr;
        step.get();
      }
    };
    StepAwaiter await_transform(Task& step) { return {*this, step, nullptr}; }
    StepAwaiter await_transform(const Overlapping& both) { return {*this, both.step, &both.other}; }
  };

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    reset();
    handle_ = std::exchange(other.handle_, {});
    return *this;
  }
  ~Task() { reset(); }

  explicit operator bool() const { return static_cast<bool>(handle_); }
  bool done() const { return handle_.done(); }
  const Condition& waiting() const {
    const promise_type& promise = handle_.promise();
    return promise.step != nullptr ? promise.step->waiting() : promise.waiting;
  }

  /// Goes on as far as possible. Returns whether there was something to do.
  bool advance() {
    if (!ready()) return false;
    do {
      handle_.resume();
    } while (!handle_.done() && ready());
    return true;
  }

  /// Throws what the finished operation threw, if it did.
  void get() const {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

  void reset() {
    if (handle_) std::exchange(handle_, {}).destroy();
  }

 private:
  /// Returns whether what the task waits for has come. If that is a step, advances the step first.
  bool ready() {
    promise_type& promise = handle_.promise();
    if (promise.step == nullptr) return promise.waiting.holds();
    if (promise.overlapping != nullptr && !promise.overlapping->done())
      promise.overlapping->advance();
    if (!promise.step->done()) promise.step->advance();
    return promise.step->done();
  }

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace ctran
