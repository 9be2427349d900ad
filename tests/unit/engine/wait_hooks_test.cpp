// What waits tell the host language: others have its lock meanwhile.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/init_point.h"
#include "ctran/select/plans.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

/// A rank's lock of the host language, which its caller has but for waits.
struct Lock : WaitHooks {
  std::atomic<bool> isFree{false};
  std::function<void()> whenTaken = [] {};
  void beforeBlocking() override { isFree = true; }
  void afterBlocking() override {
    isFree = false;
    whenTaken();
  }
  void interrupted() override { EXPECT_TRUE(isFree); }
};

TEST(WaitHooks, ALockIsFreeWhileARankWaitsForAnotherToMakeACommunicator) {
  const auto store = std::make_shared<MemoryStore>();
  for (const int first : {0, 1}) {
    Lock lock;
    runThreads(2, [&](int rank) {
      if (rank != first) awaitFlag(lock.isFree);
      Communicator::create(optionsFor(rank, 2, store, std::to_string(first)),
                           rank == first ? &lock : nullptr);
    });
    EXPECT_FALSE(lock.isFree);
  }
}

TEST(WaitHooks, ALockIsFreeWhileARankWaitsForAMemberThatHasNoStore) {
  for (const bool onOneHost : {true, false}) {
    const auto hostOf = [&](int rank) {
      return hostIdentity(onOneHost ? "" : "host" + std::to_string(rank));
    };
    InitPoint points[] = {InitPoint(hostOf(0)), InitPoint(hostOf(1))};
    for (const int first : {0, 1}) {
      Lock lock;
      runThreads(2, [&](int rank) {
        if (rank != first) awaitFlag(lock.isFree);
        CommunicatorOptions options;
        options.timeout = kGuard;
        points[rank].form({points[0].handle(), points[1].handle()}, std::to_string(first), options,
                          rank == first ? &lock : nullptr);
      });
      EXPECT_FALSE(lock.isFree);
    }
  }
}

TEST(WaitHooks, ALockIsFreeWhileARankWaitsForAnotherToJoinAGroup) {
  for (const int ranksPerHost : {0, 1}) {
    std::array<Lock, 2> locks;
    std::atomic<bool> isFirst{true};
    // Rank 1 has its lock again when all have said of which group they are, and joins only then.
    locks[1].whenTaken = [&] {
      if (isFirst.exchange(false)) awaitFlag(locks[0].isFree);
    };
    runRanks(
        2,
        [&](Communicator& communicator) {
          const int rank = communicator.rank();
          if (rank == 0) awaitFlag(locks[1].isFree);
          EXPECT_NE(communicator.split(std::vector{0, 1}, "group", {}, &locks[rank]), nullptr);
        },
        ranksPerHost);
    EXPECT_FALSE(locks[0].isFree);
  }
}

TEST(WaitHooks, ALockIsFreeUntilAFunctionHasEndedWhoseCallHasFailed) {
  Lock lock;
  std::atomic<bool> wasFree{false};
  UserFunction function;
  function.name = "waits";
  function.run = [&](const UserFunction::Call& call) {
    while (!call.group->isAborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (call.group->rank() == 0) wasFree = lock.isFree.load();
    throw std::runtime_error("it has been ended");
  };
  const uint64_t number = registerFunction(std::move(function), {.preferred = true});
  runRanks(2, [&](Communicator& communicator) {
    std::vector<int32_t> data(4, 1);
    const bool isLate = communicator.rank() == 0;  // the other one hears of it
    const Error error = errorOf([&] {
      communicator.run(allReduce(data), isLate ? kArrival : kGuard, isLate ? &lock : nullptr);
    });
    EXPECT_TRUE(!isLate || error.kind() == ErrorKind::Timeout) << error.what();
  });
  EXPECT_TRUE(wasFree);
  EXPECT_FALSE(lock.isFree);
  EXPECT_TRUE(removePlan(number));
}

}  // namespace
}  // namespace ctran::testing
