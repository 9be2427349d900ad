#include <algorithm>
#include <chrono>
#include <comms/torchcomms/BackendWrapper.hpp>
#include <string>
#include <thread>

#include "ctran/base/error.h"
#include "ctran/base/rank_list.h"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kPassed = "passed";

/// One monitored barrier in the store: a key of each rank but 0, and rank 0's verdict.
class Meeting {
 public:
  Meeting(c10d::Store& store, const TorchComm& comm, uint64_t number, milliseconds timeout)
      : store_(store),
        comm_(comm),
        number_(number),
        timeout_(timeout),
        deadline_(Clock::now() + timeout) {}

  void lead(bool waitAllRanks) {
    std::vector<int> missing;
    for (int r = 1; r < comm_.getSize() && (missing.empty() || waitAllRanks); ++r) {
      if (!await(checkIn(r))) missing.push_back(r);
    }
    std::string verdict = kPassed;
    if (!missing.empty()) verdict = failure(missing);
    store_.set(verdictOf(number_), verdict);
    if (number_ > 0) forget(verdictOf(number_ - 1));  // all have read it, or are lost
    for (int r = 1; r < comm_.getSize(); ++r) forget(checkIn(r));
    if (!missing.empty()) fail(verdict, std::move(missing));
  }

  void follow() {
    store_.set(checkIn(comm_.getRank()), "here");
    if (!await(verdictOf(number_))) {
      fail("[Rank " + std::to_string(comm_.getRank()) +
               "]: Rank 0 failed to pass monitoredBarrier in " + std::to_string(timeout_.count()) +
               " ms",
           {0});
    }
    const std::string verdict = store_.get_to_str(verdictOf(number_));
    if (verdict != kPassed) fail(verdict, {});
  }

 private:
  /// Of these ranks alone: communicators of other members may have the same name.
  std::string key(uint64_t number) const {
    std::string key = "torchcomms/monitored_barrier/" + std::string(comm_.getCommName());
    for (const int r : comm_.getRanks()) key += "," + std::to_string(r);
    return key + "/" + std::to_string(number) + "/";
  }
  std::string checkIn(int rank) const { return key(number_) + std::to_string(rank); }
  std::string verdictOf(uint64_t number) const { return key(number) + "verdict"; }

  bool await(const std::string& key) {
    milliseconds pause{1};
    while (!store_.check({key})) {
      if (Clock::now() >= deadline_) return store_.check({key});
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
    return "[Rank 0]: " + std::string(missing.size() == 1 ? "Rank " : "Ranks ") +
           ctran::listed(missing) + " failed to pass monitoredBarrier in " +
           std::to_string(timeout_.count()) + " ms";
  }

  [[noreturn]] static void fail(const std::string& message, std::vector<int> ranks) {
    throw ctran::Error(ctran::ErrorKind::Timeout, message, std::move(ranks), "monitored_barrier",
                       "see what these ranks are doing: did they take another path, or fail?");
  }

  c10d::Store& store_;
  const TorchComm& comm_;
  const uint64_t number_;
  const milliseconds timeout_;
  const Clock::time_point deadline_;
};

}  // namespace

void BackendWrapper::monitoredBarrier(const c10d::BarrierOptions& opts, bool waitAllRanks) {
  uint64_t number;
  {
    const std::lock_guard lock(issuing_);
    number = monitoredBarriers_++;
  }
  const c10::intrusive_ptr<c10d::Store> store = comm_->getOptions().store;
  const bool given = opts.timeout > kNoTimeout;
  const milliseconds timeout = given ? opts.timeout : comm_->getOptions().timeout;
  if (size_ == 1) return;
  if (!store) {
    BarrierOptions options;
    options.timeout = timeout;
    const auto work = [&] {
      const std::lock_guard lock(issuing_);
      return comm_->barrier(/*async_op=*/true, options);
    }();
    return work->wait();
  }
  const HostWait wait;
  Meeting meeting(*store, *comm_, number, timeout);
  if (rank_ == 0) {
    meeting.lead(waitAllRanks);
  } else {
    meeting.follow();
  }
}

}  // namespace torch::comms
