#include "torchcomms/csrc/backends/nccl/group.hpp"

#include <algorithm>
#include <condition_variable>

#include "ctran/os/process.h"
#include "torchcomms/csrc/backends/nccl/operation.hpp"
#include "torchcomms/csrc/backends/nccl/waiting.hpp"
#include "torchcomms/csrc/backends/nccl/watchdog.hpp"

namespace torch::comms::nccl {

namespace {

using ctran::ErrorKind;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kFirstPause{20};
constexpr microseconds kLastPause{1000};
constexpr milliseconds kSignalInterval{50};

}  // namespace

std::string describe(OpName op, const Group& group) {
  return std::string(toString(op)) + " of communicator '" + group.setup().name + "' (rank " +
         std::to_string(group.rank()) + " of " + std::to_string(group.size()) + ")";
}

Group::Group(GroupSetup setup)
    : setup_(std::move(setup)),
      events_(std::make_shared<ctran::gpu::EventPool>(setup_.runtime, deviceIndex(),
                                                      setup_.hints.mostIdleEvents)),
      replays_(setup_.runtime, events_) {}

Group::~Group() { startAbort(nullptr); }

int Group::deviceIndex() const { return setup_.device.has_index() ? setup_.device.index() : 0; }

Config Group::config() const {
  Config made = setup_.hints.config;
  if (!setup_.hints.netName.empty()) made.netName = setup_.hints.netName.c_str();
  if (library().version >= 22700) {
    made.commName = (setup_.hints.commName.empty() ? setup_.name : setup_.hints.commName).c_str();
  } else {
    made.size = offsetof(Config, trafficClass) + sizeof(made.trafficClass);
    made.version = static_cast<unsigned>(library().version);
  }
  return made;
}

void Group::runBounded(const std::function<void()>& call, const std::function<std::string()>& what,
                       Clock::time_point deadline, milliseconds timeout) {
  struct Errand {
    std::mutex mutex;
    std::condition_variable ended;
    bool over = false;
    std::exception_ptr error;
  };
  const HostWait wait;
  auto errand = std::make_shared<Errand>();
  ctran::startThread("nccl-errand", [self = shared_from_this(), errand, call] {
    std::exception_ptr error;
    try {
      const ctran::gpu::ActiveDevice active(self->runtime(), self->deviceIndex());
      const ctran::gpu::RelaxedCapture relaxed(self->runtime());
      call();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(errand->mutex);
    errand->over = true;
    errand->error = error;
    errand->ended.notify_all();
  });
  std::unique_lock lock(errand->mutex);
  while (!errand->ended.wait_for(lock, kSignalInterval, [&] { return errand->over; })) {
    lock.unlock();
    HostWait::checkInterrupts();
    requireWhole();
    if (Clock::now() >= deadline) throw timedOut(what(), timeout);
    lock.lock();
  }
  if (errand->error) std::rethrow_exception(errand->error);
}

void Group::create(const UniqueId& id, Clock::time_point deadline, milliseconds timeout) {
  const auto what = [this] { return "creating communicator '" + setup_.name + "'"; };
  runBounded(
      [this, id] {
        const std::lock_guard lock(inside_);
        Config made = config();
        check(library().commInitRankConfig(&handle_, size(), id, rank(), &made),
              "ncclCommInitRankConfig");
      },
      what, deadline, timeout);
  settle(what, deadline, timeout);
}

void Group::splitFrom(Group& parent, int color, int key, Clock::time_point deadline,
                      milliseconds timeout) {
  parent.askToSplit(shared_from_this(), color, key, deadline, timeout);
  settle([this] { return "creating communicator '" + setup_.name + "'"; }, deadline, timeout);
}

void Group::splitOff(Group& parent, Clock::time_point deadline, milliseconds timeout) {
  parent.askToSplit(nullptr, kSplitNoColor, 0, deadline, timeout);
}

void Group::askToSplit(const std::shared_ptr<Group>& child, int color, int key,
                       Clock::time_point deadline, milliseconds timeout) {
  const auto what = [this] { return describe(OpName::split, *this); };
  try {
    runBounded(
        [this, child, color, key] {
          const std::lock_guard lock(inside_);
          requireWhole();
          Config made = (child ? *child : *this).config();
          Comm none = nullptr;
          check(library().commSplit(handle_, color, key, child ? &child->handle_ : &none, &made),
                "ncclCommSplit");
        },
        what, deadline, timeout);
    settle(what, deadline, timeout);  // the child's handle is there when the parent is done
  } catch (const ctran::Error& error) {
    breakWith(error);
    throw;
  }
}

Stream Group::ownStream() {
  if (!ownStream_) {
    const ctran::gpu::RelaxedCapture relaxed(runtime());
    ownStream_.emplace(runtime(), deviceIndex(), setup_.highPriority);
  }
  return ownStream_->get();
}

void Group::watch(Stream stream, std::shared_ptr<Operation> operation) {
  {
    const std::lock_guard lock(queueMutex_);
    auto queue = std::find_if(queues_.begin(), queues_.end(),
                              [&](const Queue& one) { return one.stream == stream; });
    if (queue == queues_.end()) queue = queues_.insert(queue, Queue{stream, {}});
    queue->operations.push_back(std::move(operation));
  }
  Watchdog::poke();
}

bool Group::isIdle() const {
  if (callStart_ != 0) return false;
  const std::lock_guard lock(queueMutex_);
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const Queue& queue) { return queue.operations.empty(); });
}

void Group::keepWithGraph(Stream stream, std::shared_ptr<void> held,
                          std::shared_ptr<Replays::Captured> captured) {
  /// Freed on the watchdog's thread: the driver's may not free device memory. The last one lets go
  /// of a group that was finalized before.
  struct Kept {
    Kept(std::shared_ptr<Group> g, std::shared_ptr<void> t, std::shared_ptr<Replays::Captured> c)
        : group(std::move(g)), tensors(std::move(t)), captured(std::move(c)) {
      ++group->kept_;
    }
    ~Kept() { --group->kept_; }
    const std::shared_ptr<Group> group;
    const std::shared_ptr<void> tensors;
    const std::shared_ptr<Replays::Captured> captured;
  };
  auto kept = std::make_unique<std::shared_ptr<void>>(
      std::make_shared<Kept>(shared_from_this(), std::move(held), std::move(captured)));
  ctran::gpu::keepWithGraph(runtime(), stream, kept.get(), [](void* value) {
    const std::unique_ptr<std::shared_ptr<void>> owned(static_cast<std::shared_ptr<void>*>(value));
    Watchdog::bury(std::move(*owned));
  });
  static_cast<void>(kept.release());  // the graph's now
}

void Group::finalize(Clock::time_point deadline, milliseconds timeout) {
  const HostWait wait;
  // Every operation ends, or fails at its own deadline.
  for (Pauses pauses(kFirstPause, kLastPause); !isBroken(); pauses.rest()) {
    retireEnded();
    if (isIdle()) break;
  }
  requireWhole();
  if (setup_.bulletin) setup_.bulletin->leave();
  // The library would wait for the graphs to go, and they may be replayed until then: the last of
  // them takes the group along.
  if (kept_ == 0) leave(deadline, timeout);
}

void Group::leave(Clock::time_point deadline, milliseconds timeout) {
  const auto what = [this] { return "finalizing communicator '" + setup_.name + "'"; };
  try {
    runBounded(
        [this] {
          const std::lock_guard lock(inside_);
          leaving_ = true;
          if (handle_) check(library().commFinalize(handle_), "ncclCommFinalize");
        },
        what, deadline, timeout);
    settle(what, deadline, timeout);
    runBounded(
        [this] {
          const std::lock_guard lock(inside_);
          if (Comm handle = std::exchange(handle_, nullptr)) {
            check(library().commDestroy(handle), "ncclCommDestroy");
          }
        },
        what, deadline, timeout);
  } catch (const ctran::Error& error) {
    monitor().seen();
    breakWith(error);
    throw;
  }
}

}  // namespace torch::comms::nccl
