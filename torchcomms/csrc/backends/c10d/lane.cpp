#include "torchcomms/csrc/backends/c10d/lane.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace torch::comms {

/// Shared with the thread, which may outlive the lane by one task.
struct Lane::State {
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
      lock.lock();
      busy = false;
    }
  }
};

Lane::Lane() : state_(std::make_shared<State>()) {}

Lane::~Lane() {
  std::deque<Task> dropped;  // destroyed without the lock: tasks hold tensors and works
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  dropped.swap(state_->tasks);
  state_->posted.notify_one();
}

void Lane::post(Task task) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->threadRuns) {
    // On its own: it may be blocked in the backend when the communicator goes, for as long as the
    // backend's timeout.
    std::thread([state = state_] { state->serve(); }).detach();
    state_->threadRuns = true;
  }
  state_->tasks.push_back(std::move(task));
  state_->posted.notify_one();
}

bool Lane::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->tasks.empty() && !state_->busy;
}

}  // namespace torch::comms
