#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace torch::comms {

/// Runs tasks one after another, in the order of posting, on a thread of its own. The first task
/// starts the thread.
class TaskQueue {
 public:
  /// A task must not throw.
  using Task = std::function<void()>;

  TaskQueue();
  /// Does not wait: a running task goes on; tasks that have not begun are dropped.
  ~TaskQueue();
  TaskQueue(TaskQueue&&) noexcept = default;
  TaskQueue& operator=(TaskQueue&&) = delete;

  void post(Task task);
  /// Returns whether all tasks have ended. What they did is visible then.
  bool idle() const;

  /// Waits until the tasks of all queues of the process have ended, at most for `limit`.
  static void settleAll(std::chrono::milliseconds limit);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace torch::comms
