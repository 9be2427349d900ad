#include "torchcomms/csrc/hook_registry.hpp"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "ctran/base/counted.h"
#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "torchcomms/csrc/call_recorder.hpp"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

namespace {

/// How long a failure waits for the abort hooks: enough for most. The error of those that take
/// longer is not held up: PyTorch's flight recorder looks up C++ stack traces for seconds.
constexpr std::chrono::milliseconds kAbortHookPatience{250};
/// How long `abort` and a process that is about to end wait for them.
constexpr std::chrono::seconds kAbortHookLimit{30};

std::atomic<int> gCallingAbortHooks{0};  ///< threads

}  // namespace

uint64_t HookRegistry::nextOpId() {
  static std::atomic<uint64_t> next{kNoOpId + 1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

template <typename Hook>
RemovableHandle HookRegistry::add(List<Hook>& list, Hook hook) {
  using Entry = typename List<Hook>::Entry;
  const auto entry = std::make_shared<Entry>(std::move(hook));
  {
    const std::lock_guard lock(mutex_);
    auto changed = std::make_shared<typename List<Hook>::Entries>(*list.entries);
    changed->push_back(entry);
    list.entries = std::move(changed);
    update();
  }
  return RemovableHandle([self = weak_from_this(), &list, weak = std::weak_ptr<Entry>(entry)] {
    const auto registry = self.lock();
    const auto removed = weak.lock();
    if (registry && removed) registry->remove(list, removed);
  });
}

template <typename Hook>
void HookRegistry::remove(List<Hook>& list,
                          const std::shared_ptr<typename List<Hook>::Entry>& entry) {
  entry->removed = true;
  const std::lock_guard lock(mutex_);
  auto changed = std::make_shared<typename List<Hook>::Entries>(*list.entries);
  changed->erase(std::remove(changed->begin(), changed->end(), entry), changed->end());
  list.entries = std::move(changed);
  update();
}

template <typename Hook>
std::shared_ptr<const typename HookRegistry::List<Hook>::Entries> HookRegistry::snapshot(
    const List<Hook>& list) const {
  const std::lock_guard lock(mutex_);
  return list.entries;
}

RemovableHandle HookRegistry::addPre(PreHook hook) { return add(pre_, std::move(hook)); }
RemovableHandle HookRegistry::addPost(PostHook hook) { return add(post_, std::move(hook)); }
RemovableHandle HookRegistry::addAbort(AbortHook hook) { return add(abort_, std::move(hook)); }

void HookRegistry::mended() {
  const std::lock_guard lock(mutex_);
  if (abortState_ == Abort::Done) abortState_ = Abort::None;
}

void HookRegistry::record(std::shared_ptr<CallRecorder> recorder) {
  if (recorder_) recorder_->left();
  recorder_ = std::move(recorder);
}

void HookRegistry::update() {
  active_.store(!pre_.entries->empty() || !post_.entries->empty(), std::memory_order_relaxed);
}

c10::intrusive_ptr<TorchWork> HookRegistry::around(
    OpName op, const PreHookArgs& args,
    c10::function_ref<c10::intrusive_ptr<TorchWork>()> issue) const {
  const auto self = shared_from_this();  // a hook may do anything to what owns this
  const uint64_t id = nextOpId();
  before(op, id, args);
  c10::intrusive_ptr<TorchWork> work = issue();
  // One of its own, so that it can have hooks.
  if (work == TorchWorkCompleted::shared()) work = c10::make_intrusive<TorchWorkCompleted>();
  const c10::weak_intrusive_ptr<TorchWork> weak(work);
  if (op == OpName::batch_op_issue) {
    after(id, BatchOpIssuePostHookArgs{weak});
  } else {
    after(id, CollectivePostHookArgs{weak});
  }
  return work;
}

void HookRegistry::before(OpName op, uint64_t id, const PreHookArgs& args) const {
  const auto entries = snapshot(pre_);
  for (const auto& entry : *entries) {
    if (!entry->removed) entry->hook(op, id, args);
  }
}

void HookRegistry::after(uint64_t id, const PostHookArgs& args) const {
  const auto entries = snapshot(post_);
  for (const auto& entry : *entries) {
    if (!entry->removed) entry->hook(id, args);
  }
}

void HookRegistry::broken(bool toTheEnd) {
  const auto done = [this] { return abortState_ == Abort::Done; };
  std::unique_lock lock(mutex_);
  const bool first = abortState_ == Abort::None;
  if (first) {
    abortState_ = abort_.entries->empty() ? Abort::Done : Abort::Running;
    if (done()) return;
    lock.unlock();
    try {
      const auto calling = std::make_shared<ctran::Counted>(gCallingAbortHooks);
      ctran::startThread("comms-hooks",
                         [self = shared_from_this(), calling] { self->callAbortHooks(); });
    } catch (const ctran::Error&) {
      callAbortHooks();
    }
    lock.lock();
  }
  // Who fails next does not wait, nor a hook for itself.
  if (done() || !(first || toTheEnd) || abortCaller_ == std::this_thread::get_id()) return;
  lock.unlock();
  const HostWait wait;  // the hooks may need the interpreter lock
  lock.lock();
  abortDone_.wait_for(lock, toTheEnd ? kAbortHookLimit : kAbortHookPatience, done);
  lock.unlock();
}

void HookRegistry::settleAll(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (gCallingAbortHooks > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void HookRegistry::callAbortHooks() {
  const auto entries = snapshot(abort_);
  {
    const std::lock_guard lock(mutex_);
    abortCaller_ = std::this_thread::get_id();
  }
  for (const auto& entry : *entries) {
    if (entry->removed) continue;
    try {
      entry->hook();
    } catch (...) {
      ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Error, "an abort hook failed: %s",
                 describe(std::current_exception()).c_str());
    }
  }
  const std::lock_guard lock(mutex_);
  abortCaller_ = {};
  abortState_ = Abort::Done;
  abortDone_.notify_all();
}

void HookRegistry::clear() {
  // Let go of without the lock: what hooks hold may do anything when it goes.
  List<PreHook> pre;
  List<PostHook> post;
  List<AbortHook> abort;
  const std::lock_guard lock(mutex_);
  std::swap(pre, pre_);
  std::swap(post, post_);
  std::swap(abort, abort_);
  update();
}

}  // namespace torch::comms
