#include "ctran/engine/peer_watcher.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>

#include "ctran/base/error.h"
#include "ctran/engine/progress.h"
#include "ctran/os/process.h"

namespace ctran {
namespace {

class Watcher {
 public:
  Watcher() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw systemError("epoll_create1", errno);
    startThread("ctran-watcher", [this] { loop(); });
  }

  uint64_t watch(int fd, uint32_t events, std::function<void()> told, bool repeats) {
    UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!own) throw systemError("dup", errno);
    std::lock_guard lock(mutex_);
    const uint64_t id = ++lastId_;
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, own.get(), &event) != 0) {
      throw systemError("epoll_ctl", errno);
    }
    watches_.emplace(id, Watch{std::move(own), std::move(told), repeats});
    return id;
  }

  void arm(uint64_t id) {
    std::lock_guard lock(mutex_);
    const auto found = watches_.find(id);
    if (found == watches_.end()) return;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    event.data.u64 = id;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd.get(), &event);
  }

  void unwatch(uint64_t id) { take(id); }

 private:
  struct Watch {
    UniqueFd fd;
    std::function<void()> told;
    bool repeats = false;
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

  /// Who is told once is not watched any longer; the others wait to be armed again.
  std::function<void()> toldOf(uint64_t id) {
    {
      std::lock_guard lock(mutex_);
      const auto found = watches_.find(id);
      if (found == watches_.end()) return nullptr;
      if (found->second.repeats) return found->second.told;
    }
    return take(id).told;
  }

  void loop() {
    Progress::enter();
    while (true) {
      epoll_event event{};
      if (::epoll_wait(epoll_.get(), &event, 1, -1) != 1) continue;
      if ((event.events & EPOLLIN) == 0) continue;
      const auto told = toldOf(event.data.u64);
      if (told) told();
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

Watcher& watcher() {
  std::lock_guard lock(gMutex);
  if (gWatcher.load(std::memory_order_acquire) == nullptr) {
    gWatcher.store(new Watcher, std::memory_order_release);
  }
  return *gWatcher.load(std::memory_order_acquire);
}

}  // namespace

uint64_t PeerWatcher::watch(const UniqueFd& pidFd, std::function<void()> died) {
  return watcher().watch(pidFd.get(), EPOLLIN, std::move(died), false);
}

uint64_t PeerWatcher::watchReadable(int fd, std::function<void()> isReadable) {
  return watcher().watch(fd, 0, std::move(isReadable), true);
}

void PeerWatcher::arm(uint64_t watch) {
  if (Watcher* existing = gWatcher.load(std::memory_order_acquire)) existing->arm(watch);
}

void PeerWatcher::unwatch(uint64_t watch) {
  if (Watcher* existing = gWatcher.load(std::memory_order_acquire)) existing->unwatch(watch);
}

void PeerWatcher::forget() {
  new (&gMutex) std::mutex;  // another thread may have held it
  gWatcher.store(nullptr, std::memory_order_release);
}

}  // namespace ctran
