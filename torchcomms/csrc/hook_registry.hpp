#pragma once

#include <c10/util/FunctionRef.h>

#include <atomic>
#include <chrono>
#include <comms/torchcomms/TorchCommHooks.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace torch::comms {

class CallRecorder;

/// The hooks of one communicator, called in the order of their registration, and its recorder. All
/// methods except those of the recorder may be called from any thread, also inside a hook.
class HookRegistry : public std::enable_shared_from_this<HookRegistry> {
 public:
  RemovableHandle addPre(PreHook hook);
  RemovableHandle addPost(PostHook hook);
  RemovableHandle addAbort(AbortHook hook);

  /// From now on operations are recorded there; null: they are not recorded. Must not be called
  /// during an operation.
  void record(std::shared_ptr<CallRecorder> recorder);
  CallRecorder* recorder() const { return recorder_.get(); }

  /// Returns whether operations have to call hooks or the recorder. An operation without either
  /// pays for this check only.
  bool active() const { return active_.load(std::memory_order_relaxed); }

  /// Returns the next number of an operation, counted over all communicators from 1.
  static uint64_t nextOpId();
  /// The number that hooks get for finalize(), which is no operation.
  static constexpr uint64_t kNoOpId = 0;

  /// Issues an operation between its hooks.
  c10::intrusive_ptr<TorchWork> around(
      OpName op, const PreHookArgs& args,
      c10::function_ref<c10::intrusive_ptr<TorchWork>()> issue) const;
  void before(OpName op, uint64_t id, const PreHookArgs& args) const;
  void after(uint64_t id, const PostHookArgs& args) const;
  /// Is called when the communicator is broken. The first time, a thread of its own calls the abort
  /// hooks, and this waits a quarter of a second for them. `toTheEnd`: waits every time until they
  /// have ended, at most half a minute.
  void broken(bool toTheEnd);
  /// Is called when the communicator works again: the next call of `broken` is a first one.
  void mended();

  /// Forgets all hooks.
  void clear();

  /// Waits until no abort hook of any communicator runs, at most for `limit`.
  static void settleAll(std::chrono::milliseconds limit);

 private:
  /// One kind of hooks. A caller of hooks holds the list as it was, so a list is never changed.
  template <typename Hook>
  struct List {
    struct Entry {
      explicit Entry(Hook hook) : hook(std::move(hook)) {}
      const Hook hook;
      std::atomic<bool> removed{false};
    };
    using Entries = std::vector<std::shared_ptr<Entry>>;
    std::shared_ptr<const Entries> entries = std::make_shared<Entries>();
  };

  template <typename Hook>
  RemovableHandle add(List<Hook>& list, Hook hook);
  template <typename Hook>
  void remove(List<Hook>& list, const std::shared_ptr<typename List<Hook>::Entry>& entry);
  template <typename Hook>
  std::shared_ptr<const typename List<Hook>::Entries> snapshot(const List<Hook>& list) const;
  void update();
  void callAbortHooks();

  mutable std::mutex mutex_;  // guards what follows
  List<PreHook> pre_;
  List<PostHook> post_;
  List<AbortHook> abort_;
  enum class Abort { None, Running, Done } abortState_ = Abort::None;
  std::thread::id abortCaller_;  ///< no thread while no hook runs
  std::condition_variable abortDone_;
  std::atomic<bool> active_{false};
  std::shared_ptr<CallRecorder> recorder_;
};

}  // namespace torch::comms
