#include "ctran/engine/peer_watcher.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <vector>

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

  /// One descriptor per watched process, however many watch it.
  uint64_t watchProcess(UniqueFd pidFd, uint64_t process, std::function<void()> died) {
    std::lock_guard lock(mutex_);
    const auto known = processes_.find(process);
    const uint64_t descriptor =
        known != processes_.end() ? known->second : add(std::move(pidFd), EPOLLIN);
    processes_[process] = descriptor;
    watched_[descriptor].process = process;
    const uint64_t id = ++lastId_;
    watched_[descriptor].told.emplace(id, std::move(died));
    watches_.emplace(id, descriptor);
    return id;
  }

  uint64_t watchReadable(UniqueFd fd, std::function<void()> isReadable) {
    std::lock_guard lock(mutex_);
    const uint64_t id = add(std::move(fd), 0);
    watched_[id].told.emplace(id, std::move(isReadable));
    watches_.emplace(id, id);
    return id;
  }

  void arm(uint64_t id) {
    std::lock_guard lock(mutex_);
    const auto found = watched_.find(id);
    if (found == watched_.end()) return;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    event.data.u64 = id;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd.get(), &event);
  }

  void unwatch(uint64_t id) {
    std::lock_guard lock(mutex_);
    const auto watch = watches_.find(id);
    if (watch == watches_.end()) return;
    const uint64_t descriptor = watch->second;
    watches_.erase(watch);
    Watched& watched = watched_[descriptor];
    watched.told.erase(id);
    if (watched.told.empty()) drop(descriptor);
  }

 private:
  /// What is called when a descriptor is readable.
  struct Watched {
    UniqueFd fd;
    uint64_t process = 0;                            // 0: none
    std::map<uint64_t, std::function<void()>> told;  // by watch
  };

  uint64_t add(UniqueFd fd, uint32_t events) {
    const uint64_t id = ++lastId_;
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) {
      throw systemError("epoll_ctl", errno);
    }
    watched_[id].fd = std::move(fd);
    return id;
  }

  void drop(uint64_t descriptor) {
    const auto found = watched_.find(descriptor);
    // By hand, because closing would not remove it while a forked child has the descriptor open,
    // too.
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd.get(), nullptr);
    processes_.erase(found->second.process);
    watched_.erase(found);
  }

  /// A watch for an end is called once; the others wait to be armed again.
  std::vector<std::function<void()>> toldOf(uint64_t descriptor) {
    std::lock_guard lock(mutex_);
    const auto found = watched_.find(descriptor);
    if (found == watched_.end()) return {};
    std::vector<std::function<void()>> all;
    for (const auto& [id, told] : found->second.told) all.push_back(told);
    if (found->second.process == 0) return all;
    for (const auto& [id, told] : found->second.told) watches_.erase(id);
    drop(descriptor);
    return all;
  }

  void loop() {
    Progress::enter();
    while (true) {
      epoll_event event{};
      if (::epoll_wait(epoll_.get(), &event, 1, -1) != 1) continue;
      if ((event.events & EPOLLIN) == 0) continue;
      for (const auto& told : toldOf(event.data.u64)) told();
    }
  }

  UniqueFd epoll_;
  std::mutex mutex_;
  uint64_t lastId_ = 0;
  std::map<uint64_t, Watched> watched_;     // by descriptor, as epoll knows it
  std::map<uint64_t, uint64_t> watches_;    // the descriptor of each
  std::map<uint64_t, uint64_t> processes_;  // the descriptor of each
};

// Never destroyed: the thread runs until the process ends.
std::mutex gWatcherMutex;
std::atomic<Watcher*> gWatcher{nullptr};

Watcher& watcher() {
  std::lock_guard lock(gWatcherMutex);
  if (gWatcher.load(std::memory_order_acquire) == nullptr) {
    gWatcher.store(new Watcher, std::memory_order_release);
  }
  return *gWatcher.load(std::memory_order_acquire);
}

}  // namespace

uint64_t PeerWatcher::watch(UniqueFd pidFd, uint64_t process, std::function<void()> died) {
  return watcher().watchProcess(std::move(pidFd), process, std::move(died));
}

uint64_t PeerWatcher::watchReadable(int fd, std::function<void()> isReadable) {
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own) throw systemError("dup", errno);
  return watcher().watchReadable(std::move(own), std::move(isReadable));
}

void PeerWatcher::arm(uint64_t watch) {
  if (Watcher* existing = gWatcher.load(std::memory_order_acquire)) existing->arm(watch);
}

void PeerWatcher::unwatch(uint64_t watch) {
  if (Watcher* existing = gWatcher.load(std::memory_order_acquire)) existing->unwatch(watch);
}

void PeerWatcher::forget() {
  new (&gWatcherMutex) std::mutex;  // another thread may have held it
  gWatcher.store(nullptr, std::memory_order_release);
}

}  // namespace ctran
