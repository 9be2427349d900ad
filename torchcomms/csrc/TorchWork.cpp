#include <atomic>
#include <comms/torchcomms/TorchWork.hpp>
#include <memory>
#include <mutex>
#include <vector>

#include "ctran/base/error.h"

namespace torch::comms {

namespace {
HostRuntime theHostRuntime;  // written once, when the bindings are loaded
}  // namespace

void setHostRuntime(const HostRuntime& runtime) { theHostRuntime = runtime; }
const HostRuntime& hostRuntime() { return theHostRuntime; }

struct TorchWork::WaitHooks {
  std::mutex mutex;
  std::vector<Hook> pre;
  std::vector<Hook> post;

  void call(const std::vector<Hook>& hooks) {
    std::vector<Hook> now;
    {
      const std::lock_guard lock(mutex);
      now = hooks;
    }
    for (const Hook& hook : now) hook();
  }
};

TorchWork::~TorchWork() { delete waitHooks_.load(std::memory_order_acquire); }

void TorchWork::addWaitHook(Hook hook, bool before) {
  WaitHooks* hooks = waitHooks_.load(std::memory_order_acquire);
  if (hooks == nullptr) {
    auto made = std::make_unique<WaitHooks>();
    if (waitHooks_.compare_exchange_strong(hooks, made.get())) hooks = made.release();
  }
  const std::lock_guard lock(hooks->mutex);
  (before ? hooks->pre : hooks->post).push_back(std::move(hook));
}

bool TorchWork::waitHooked(bool (TorchWork::*wait)(Limit), Limit limit) {
  WaitHooks& hooks = *waitHooks_.load(std::memory_order_acquire);
  hooks.call(hooks.pre);
  const bool ended = (this->*wait)(limit);
  if (ended) hooks.call(hooks.post);
  return ended;
}

void TorchWork::setStartCallback(Hook callback) {
  if (status() == WorkStatus::NOT_STARTED) return setCallback(std::move(callback));
  callback();
}

void TorchWorkCompleted::addWaitHook(Hook hook, bool before) {
  if (this == shared().get()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "This work stands for every operation that had ended when its call "
                       "returned, so it cannot have hooks of its own for waits",
                       {}, {},
                       "register them in a post-hook of the communicator, or use async_op=True");
  }
  TorchWork::addWaitHook(std::move(hook), before);
}

void TorchWork::setStatus(WorkStatus status) {
  if (this == TorchWorkCompleted::shared().get()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "This work stands for every operation that had ended when its call "
                       "returned, so it cannot have a status of its own",
                       {}, {}, "use async_op=True");
  }
  said_.store(status, std::memory_order_relaxed);
}

const c10::intrusive_ptr<TorchWork>& TorchWorkCompleted::shared() {
  static const c10::intrusive_ptr<TorchWork> work = c10::make_intrusive<TorchWorkCompleted>();
  return work;
}

std::string_view toString(WorkStatus status) {
  switch (status) {
    case WorkStatus::NOT_STARTED:
      return "NOT_STARTED";
    case WorkStatus::INPROGRESS:
      return "INPROGRESS";
    case WorkStatus::COMPLETED:
      return "COMPLETED";
    case WorkStatus::TIMEDOUT:
      return "TIMEDOUT";
    case WorkStatus::ERROR:
      return "ERROR";
  }
  return "unknown";
}

}  // namespace torch::comms
