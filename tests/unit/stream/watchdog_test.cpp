#include "ctran/stream/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "tests/unit/stream/stream_fixture.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using WatchdogTest = StreamTest;

TEST_F(WatchdogTest, LetsGoOfWhatItIsGivenOnItsOwnThread) {
  const auto queue = makeQueue();
  Watchdog::add(queue);
  std::atomic<bool> gone{false};
  std::thread::id where;
  Watchdog::release(std::shared_ptr<void>(nullptr, [&](void*) {
    where = std::this_thread::get_id();
    gone = true;
  }));
  awaitFlag(gone);
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST_F(WatchdogTest, LooksAtAQueueAsSoonAsAnOperationIsEnqueued) {
  StreamQueueOptions slow = options();
  slow.idleInterval = std::chrono::seconds(1);
  const auto queue = makeQueue(slow);
  Watchdog::add(queue);
  gate.open();
  for (int i = 0; i < 10; ++i) {
    std::atomic<bool> ended{false};
    enqueue(*queue)->onDone([&] { ended = true; });  // nobody waits for it
    awaitFlag(ended);
  }
}

TEST_F(WatchdogTest, RunsABodyOnAThreadOfItsOwn) {
  std::atomic<bool> ran{false};
  Watchdog::spawn("a-test", [&] { ran = true; });
  awaitFlag(ran);
  EXPECT_FALSE(Watchdog::isStopped());
}

TEST(StoppedWatchdog, RunsNothing) {
  // In this process it would be for good. No thread runs yet in this one: after a fork in the midst
  // of another thread's end, ASan lets no thread of the child start.
  ForkedRanks child(1, [&](int) {
    const auto queue = std::make_shared<Queue>(
        StreamQueueOptions{.runtime = standInRuntime(), .name = "test", .size = 1});
    Watchdog::add(queue);
    std::atomic<bool> ran{false};
    Watchdog::spawn("a-test", [&] { ran = true; });
    Watchdog::stop();
    EXPECT_TRUE(Watchdog::isStopped());
    EXPECT_TRUE(ran);
    bool gone = false;
    Watchdog::release(std::shared_ptr<void>(nullptr, [&](void*) { gone = true; }));
    EXPECT_FALSE(gone);
  });
  child.expectSuccess();
}

}  // namespace
}  // namespace ctran::testing
