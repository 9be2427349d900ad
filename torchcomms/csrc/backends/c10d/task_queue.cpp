#include "torchcomms/csrc/backends/c10d/task_queue.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "ctran/os/process.h"

namespace torch::comms {

namespace {

/// The tasks of all queues that have not ended. Never destroyed: threads of queues may be the last
/// to use it.
struct Census {
  std::mutex mutex;
  std::condition_variable changed;
  size_t tasks = 0;

  static Census& get() {
    static Census* const census = new Census;
    return *census;
  }
  void begun() {
    const std::lock_guard lock(mutex);
    ++tasks;
  }
  void ended(size_t count) {
    const std::lock_guard lock(mutex);
    tasks -= count;
    changed.notify_all();
  }
};

}  // namespace

/// Shared with the thread, which may outlive the queue by one task.
struct TaskQueue::State {
  mutable std::mutex mutex;
  std::condition_variable posted;
  std::deque<Task> tasks;
  bool threadRuns = false;
  bool busy = false;
  bool closed = false;

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      posted.wait(lock, [&] { return closed || !tasks.empty(); });
      if (closed) return;
      Task task = std::move(tasks.front());
      tasks.pop_front();
      busy = true;
      lock.unlock();
      task();
      task = nullptr;  // what it holds goes while it still counts as running
      Census::get().ended(1);
      lock.lock();
      busy = false;
    }
  }
};

TaskQueue::TaskQueue() : state_(std::make_shared<State>()) {}

TaskQueue::~TaskQueue() {
  if (!state_) return;       // moved from
  std::deque<Task> dropped;  // destroyed without the lock: tasks hold tensors and works
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  dropped.swap(state_->tasks);
  Census::get().ended(dropped.size());
  state_->posted.notify_one();
}

void TaskQueue::post(Task task) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->threadRuns) {
    // On its own: it may be blocked in the backend when the communicator goes, for as long as the
    // backend's timeout.
    ctran::startThread("comms-c10d", [state = state_] { state->serve(); });
    state_->threadRuns = true;
  }
  state_->tasks.push_back(std::move(task));
  Census::get().begun();
  state_->posted.notify_one();
}

void TaskQueue::settleAll(std::chrono::milliseconds limit) {
  Census& census = Census::get();
  std::unique_lock lock(census.mutex);
  census.changed.wait_for(lock, limit, [&] { return census.tasks == 0; });
}

bool TaskQueue::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->tasks.empty() && !state_->busy;
}

}  // namespace torch::comms
