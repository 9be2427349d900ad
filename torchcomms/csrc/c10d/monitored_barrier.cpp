#include <algorithm>
#include <chrono>
#include <comms/torchcomms/BackendWrapper.hpp>
#include <string>
#include <thread>

#include "ctran/base/error.h"
#include "ctran/base/rank_list.h"
#include "torchcomms/csrc/c10d/issue.hpp"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kPassed = "passed";

/// What rank 0's verdict may take to reach the others, beyond its timeout.
constexpr milliseconds kSlack{5000};

/// One monitored barrier in the store: a key of each rank, and rank 0's verdict. Programs look for
/// the texts of PyTorch's own, so these say the same in the same words, and more.
class Barrier {
 public:
  /// `members` is the uuid that all members have reconfigured with, if they have: those that came
  /// with it have met in no barrier before.
  Barrier(c10d::Store& store, const TorchComm& comm, const std::string& members, uint64_t number,
          milliseconds timeout)
      : store_(store),
        comm_(comm),
        members_(members),
        number_(number),
        timeout_(timeout),
        deadline_(Clock::now() + timeout) {}

  void lead(bool waitAllRanks) {
    store_.set(checkIn(0), std::to_string(timeout_.count()));
    std::vector<int> missing;
    for (int r = 1; r < comm_.getSize() && (missing.empty() || waitAllRanks); ++r) {
      if (!await(checkIn(r), deadline_)) missing.push_back(r);
    }
    std::string verdict = kPassed;
    if (!missing.empty()) verdict = failure(missing);
    store_.set(verdictOf(number_), verdict);
    // Who has come has read the verdict before this one; who has not may still do so.
    if (missing.empty() && number_ > 0) forget(verdictOf(number_ - 1));
    for (int r = 1; r < comm_.getSize(); ++r) forget(checkIn(r));
    if (!missing.empty()) fail(verdict, std::move(missing));
    if (number_ > 0) forget(checkInOf(number_ - 1, 0));
  }

  void follow() {
    const bool late = store_.check({verdictOf(number_)});
    store_.set(checkIn(comm_.getRank()), "here");
    const std::string self = "Rank " + std::to_string(comm_.getRank());
    const std::string reached =
        self +
        " successfully reached monitoredBarrier, but received errors while waiting for "
        "send/recv from rank 0: ";
    if (!awaitVerdict()) {
      fail(reached + "Rank 0 failed to pass monitoredBarrier in " +
               std::to_string(timeout_.count()) + " ms",
           {0});
    }
    const std::string verdict = store_.get_to_str(verdictOf(number_));
    if (verdict == kPassed) return;
    fail((late ? self + " reached monitoredBarrier too late: " : reached) + verdict, {});
  }

 private:
  /// Of these ranks alone: communicators of other members may have the same name.
  std::string key(uint64_t number) const {
    std::string key = "torchcomms/monitored_barrier/" + std::string(comm_.getCommName());
    for (const int r : comm_.getRanks()) key += "," + std::to_string(r);
    if (!members_.empty()) key += "/reconfigured " + members_;
    return key + "/" + std::to_string(number) + "/";
  }
  std::string checkInOf(uint64_t number, int rank) const {
    return key(number) + std::to_string(rank);
  }
  std::string checkIn(int rank) const { return checkInOf(number_, rank); }
  std::string verdictOf(uint64_t number) const { return key(number) + "verdict"; }

  /// Rank 0's time runs from when it comes. So where it has come, the others wait for what it says.
  bool awaitVerdict() {
    if (await(verdictOf(number_), deadline_)) return true;
    if (!store_.check({checkIn(0)})) return false;
    const milliseconds timeout{std::stoll(store_.get_to_str(checkIn(0)))};
    return await(verdictOf(number_), Clock::now() + timeout + kSlack);
  }

  bool await(const std::string& key, Clock::time_point deadline) {
    milliseconds pause{1};
    while (!store_.check({key})) {
      if (Clock::now() >= deadline) return store_.check({key});
      HostWait::checkInterrupts();
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, milliseconds(20));
    }
    return true;
  }

  void forget(const std::string& key) {
    try {
      store_.deleteKey(key);
    } catch (const std::exception&) {
      // Some stores cannot; the keys are small.
    }
  }

  std::string failure(const std::vector<int>& missing) const {
    const std::string time = std::to_string(timeout_.count()) + " ms";
    std::string text = "[Rank 0]: " + std::string(missing.size() == 1 ? "Rank " : "Ranks ") +
                       ctran::listed(missing) + " failed to pass monitoredBarrier in " + time;
    if (timeout_ > kNoTimeout) return text;
    return "Rank 0 timed out in monitoredBarrier after " + time + ": " + text;
  }

  [[noreturn]] static void fail(const std::string& message, std::vector<int> ranks) {
    throw ctran::Error(ctran::ErrorKind::Timeout, message, std::move(ranks), "monitored_barrier",
                       "see what these ranks are doing: did they take another path, or fail?");
  }

  c10d::Store& store_;
  const TorchComm& comm_;
  const std::string members_;
  const uint64_t number_;
  const milliseconds timeout_;
  const Clock::time_point deadline_;
};

}  // namespace

void BackendWrapper::monitoredBarrier(const c10d::BarrierOptions& opts, bool waitAllRanks) {
  uint64_t number;
  std::string members;
  {
    const std::lock_guard lock(issuing_);
    number = monitoredBarriers_++;
    members = members_;
  }
  const c10::intrusive_ptr<c10d::Store> store = comm_->getOptions().store;
  const bool given = opts.timeout >= kNoTimeout;  // 0: who is not there yet is missing
  const milliseconds timeout = given ? Call::bounded(opts.timeout) : comm_->getOptions().timeout;
  if (size_ == 1) return;
  if (!store) {
    BarrierOptions options;
    options.timeout = std::max(timeout, milliseconds(1));
    const auto work = [&] {
      const std::lock_guard lock(issuing_);
      return comm_->barrier(/*async_op=*/true, options);
    }();
    return work->wait();
  }
  const HostWait wait;
  Barrier barrier(*store, *comm_, members, number, timeout);
  if (rank_ == 0) {
    barrier.lead(waitAllRanks);
  } else {
    barrier.follow();
  }
}

}  // namespace torch::comms
