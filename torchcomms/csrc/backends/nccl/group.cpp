#include "torchcomms/csrc/backends/nccl/group.hpp"

#include <condition_variable>

#include "ctran/os/process.h"
#include "torchcomms/csrc/engine_wait_hooks.hpp"

namespace torch::comms::nccl {

namespace {

using ctran::ErrorKind;
using std::chrono::milliseconds;

constexpr milliseconds kSignalInterval{50};

}  // namespace

Group::Group(GroupSetup setup)
    : ctran::StreamQueue({.runtime = setup.runtime,
                          .device = setup.device.has_index() ? setup.device.index() : 0,
                          .name = setup.name,
                          .rank = setup.rank,
                          .size = setup.size,
                          .highPriority = setup.highPriority,
                          .freesInStreamOrder = !setup.device.is_cpu(),
                          .mostIdleEvents = setup.hints.mostIdleEvents,
                          .checkInterval = setup.hints.checkInterval,
                          .idleInterval = setup.hints.replayInterval,
                          .observer = setup.monitor}),
      setup_(std::move(setup)),
      replays_(runtime(), device(), events()) {}

Group::~Group() { startAbort(nullptr); }

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
      const ctran::gpu::ActiveDevice active(self->runtime(), self->device());
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
    throwIfBroken();
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
  const auto what = [this] { return describe(toString(OpName::split)); };
  try {
    runBounded(
        [this, child, color, key] {
          const std::lock_guard lock(inside_);
          throwIfBroken();
          Config made = (child ? *child : *this).config();
          Comm none = nullptr;
          check(library().commSplit(handle_, color, key, child ? &child->handle_ : &none, &made),
                "ncclCommSplit");
        },
        what, deadline, timeout);
    settle(what, deadline, timeout);  // the child's handle is there when the parent is done
  } catch (const ctran::Error& error) {
    unborn_ = child;
    breakWith(error);
    throw;
  } catch (...) {  // Ctrl-C
    unborn_ = child;
    observer().seen();
    breakWith(ctran::Error(ErrorKind::Aborted, what() + " was interrupted", {rank()}));
    throw;
  }
}

void Group::finalize(Clock::time_point deadline, milliseconds timeout) {
  EngineWaitHooks hooks;
  drain(&hooks);
  throwIfBroken();
  if (setup_.outOfBand) setup_.outOfBand->leave();
  // The library would wait for the graphs to go, and they may be replayed until then: the last of
  // them takes the group along.
  if (!hasGraphs()) leave(deadline, timeout);
  finalized_ = true;
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
    observer().seen();
    breakWith(error);
    throw;
  }
}

}  // namespace torch::comms::nccl
