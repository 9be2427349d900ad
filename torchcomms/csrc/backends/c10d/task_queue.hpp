#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace torch::comms {

/// Runs tasks one after another, in the order of posting, on a thread of its own. The thread is
/// made for the first task.
class TaskQueue {
 public:
  /// Must not throw.
  using Task = std::function<void()>;

  TaskQueue();
  /// Does not wait: a task that runs goes on, tasks that have not begun are dropped.
  ~TaskQueue();
  TaskQueue(TaskQueue&&) noexcept = default;
  TaskQueue& operator=(TaskQueue&&) = delete;

  void post(Task task);
  /// Whether all tasks have ended. What they did is visible then.
  bool idle() const;

  /// Waits until the tasks of all queues of the process have ended, at most so long.
  static void settleAll(std::chrono::milliseconds limit);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace torch::comms
