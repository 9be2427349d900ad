#include "ctran/engine/peer_watcher.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>

#include "ctran/base/error.h"
#include "ctran/os/process.h"

namespace ctran {
namespace {

class Watcher {
 public:
  Watcher() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw systemError("epoll_create1", errno);
    startThread("ctran-watcher", [this] { loop(); });
  }

  uint64_t watch(const UniqueFd& pidFd, std::function<void()> died) {
    UniqueFd own(::fcntl(pidFd.get(), F_DUPFD_CLOEXEC, 0));
    if (!own) throw systemError("dup", errno);
    std::lock_guard lock(mutex_);
    const uint64_t id = ++lastId_;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, own.get(), &event) != 0) {
      throw systemError("epoll_ctl", errno);
    }
    watches_.emplace(id, Watch{std::move(own), std::move(died)});
    return id;
  }

  void unwatch(uint64_t id) { take(id); }

 private:
  struct Watch {
    UniqueFd fd;
    std::function<void()> died;
  };

  Watch take(uint64_t id) {
    std::lock_guard lock(mutex_);
    const auto found = watches_.find(id);
    if (found == watches_.end()) return {};
    Watch watch = std::move(found->second);
    watches_.erase(found);
    // By hand: closing would not do it while a forked child has the descriptor open too.
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watch.fd.get(), nullptr);
    return watch;
  }

  void loop() {
    while (true) {
      epoll_event event{};
      if (::epoll_wait(epoll_.get(), &event, 1, -1) != 1) continue;
      const Watch watch = take(event.data.u64);
      if (watch.died) watch.died();
    }
  }

  UniqueFd epoll_;
  std::mutex mutex_;
  uint64_t lastId_ = 0;
  std::map<uint64_t, Watch> watches_;
};

// Never destroyed: the thread runs until the process ends.
std::mutex gMutex;
std::atomic<Watcher*> gWatcher{nullptr};

}  // namespace

uint64_t PeerWatcher::watch(const UniqueFd& pidFd, std::function<void()> died) {
  {
    std::lock_guard lock(gMutex);
    if (gWatcher.load(std::memory_order_acquire) == nullptr) {
      gWatcher.store(new Watcher, std::memory_order_release);
    }
  }
  return gWatcher.load(std::memory_order_acquire)->watch(pidFd, std::move(died));
}

void PeerWatcher::unwatch(uint64_t watch) {
  if (Watcher* watcher = gWatcher.load(std::memory_order_acquire)) watcher->unwatch(watch);
}

void PeerWatcher::forget() {
  new (&gMutex) std::mutex;  // another thread may have held it
  gWatcher.store(nullptr, std::memory_order_release);
}

}  // namespace ctran
