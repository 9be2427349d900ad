#include "ctran/rdma/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/os/process.h"
#include "ctran/os/unique_fd.h"

namespace ctran {

namespace {

thread_local bool isLoopThread = false;

}  // namespace

struct RdmaLoop::State {
  const int process = ::getpid();
  UniqueFd epoll, waker;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Driven>> driven;
  uint64_t rounds = 0;  // begun
  bool serving = false, ended = false;

  /// A forked child has no such thread, and its copy of `mutex` may be locked for ever.
  bool isOurs() const { return process == ::getpid(); }
  void run();
};

RdmaLoop::RdmaLoop() : state_(std::make_shared<State>()) {
  state_->epoll = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!state_->epoll) throw systemError("epoll_create1", errno);
  state_->waker = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state_->waker) throw systemError("eventfd", errno);
  watch(state_->waker.get());
  startThread("ctran-rdma", [state = state_] { state->run(); });
}

RdmaLoop::~RdmaLoop() {
  if (!state_->isOurs()) return;
  const std::lock_guard lock(state_->mutex);
  state_->ended = true;
  wake();
}

std::shared_ptr<RdmaLoop> RdmaLoop::shared() {
  static std::mutex mutex;
  static std::weak_ptr<RdmaLoop> running;
  const std::lock_guard lock(mutex);
  std::shared_ptr<RdmaLoop> loop = running.lock();
  if (!loop || !loop->state_->isOurs()) {
    loop = std::make_shared<RdmaLoop>();
    running = loop;
  }
  return loop;
}

bool RdmaLoop::isThisThread() { return isLoopThread; }

void RdmaLoop::add(const std::shared_ptr<Driven>& driven) {
  const std::lock_guard lock(state_->mutex);
  state_->driven.push_back(driven);
}

void RdmaLoop::remove(const std::shared_ptr<Driven>& driven) {
  if (!state_->isOurs()) return;
  std::unique_lock lock(state_->mutex);
  std::erase(state_->driven, driven);
  if (isThisThread()) return;
  const uint64_t round = state_->rounds;
  state_->changed.wait(lock, [&] { return !state_->serving || state_->rounds != round; });
}

void RdmaLoop::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(state_->epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw systemError("epoll_ctl", errno);
  }
}

void RdmaLoop::unwatch(int fd) { ::epoll_ctl(state_->epoll.get(), EPOLL_CTL_DEL, fd, nullptr); }

void RdmaLoop::wake() { ::eventfd_write(state_->waker.get(), 1); }

void RdmaLoop::State::run() {
  isLoopThread = true;
  std::vector<std::shared_ptr<Driven>> all;
  int wait = -1;
  for (;;) {
    epoll_event events[8];
    ::epoll_wait(epoll.get(), events, 8, wait);
    eventfd_t woken;
    ::eventfd_read(waker.get(), &woken);
    {
      const std::lock_guard lock(mutex);
      if (ended) return;
      all = driven;
      ++rounds;
      serving = true;
    }
    wait = -1;
    for (const auto& each : all) {
      const int wanted = each->service();
      if (wanted >= 0) wait = wait < 0 ? wanted : std::min(wait, wanted);
    }
    all.clear();
    const std::lock_guard lock(mutex);
    serving = false;
    changed.notify_all();
  }
}

}  // namespace ctran
