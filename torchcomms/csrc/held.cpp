#include "torchcomms/csrc/held.hpp"

#include <pthread.h>

#include <atomic>
#include <comms/torchcomms/TorchWork.hpp>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace torch::comms {

namespace {

using All = std::vector<std::shared_ptr<void>>;

void letGo(void* all) { static_cast<All*>(all)->clear(); }

/// One thread, which asks for the lock once for all that has come meanwhile.
struct Releaser {
  std::mutex mutex;
  std::condition_variable posted;
  All owned;
  bool runs = false;

  void post(std::shared_ptr<void> one) {
    const std::lock_guard lock(mutex);
    if (!runs) ctran::startThread("comms-release", [this] { serve(); });
    runs = true;
    owned.push_back(std::move(one));
    posted.notify_one();
  }

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      posted.wait(lock, [&] { return !owned.empty(); });
      All all;
      all.swap(owned);
      lock.unlock();
      hostRuntime().callHolding(&letGo, &all);
      lock.lock();
    }
  }
};

/// Never destroyed: the thread runs until the process ends. A forked child starts without.
std::atomic<Releaser*> gReleaser{new Releaser};
[[maybe_unused]] const int gAtFork =
    pthread_atfork(nullptr, nullptr, [] { gReleaser = new Releaser; });

}  // namespace

void letGoElsewhere(std::shared_ptr<void> owned) {
  if (hostRuntime().callHolding) gReleaser.load()->post(std::move(owned));  // else: here
}

}  // namespace torch::comms
