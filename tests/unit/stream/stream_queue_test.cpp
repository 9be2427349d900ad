#include "ctran/stream/stream_queue.h"

#include <thread>

#include "ctran/base/config.h"
#include "ctran/stream/watchdog.h"
#include "ctran/trace/ticks.h"
#include "tests/unit/stream/stream_fixture.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using StreamQueueTest = StreamTest;

TEST_F(StreamQueueTest, AnOperationEndsWhenItsStreamHasComeThere) {
  const auto queue = makeQueue();
  const auto operation = enqueue(*queue);
  int calls = 0;
  operation->onDone([&] { ++calls; });
  EXPECT_EQ(operation->state(), WorkState::Running);
  EXPECT_FALSE(queue->isIdle());
  EXPECT_FALSE(operation->waitFor(Milliseconds(2)));
  gate.open();
  operation->wait();
  EXPECT_EQ(operation->state(), WorkState::Completed);
  EXPECT_EQ(operation->error(), nullptr);
  EXPECT_EQ(calls, 1);
  operation->onDone([&] { ++calls; });
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(queue->inspect());
  EXPECT_EQ(observer->seenErrors, 0);
}

/// A busy machine may not look at the device's clock in time: the next second it does.
std::optional<DeviceSpan> spanOf(const std::function<std::shared_ptr<StreamOperation>()>& run) {
  for (int attempt = 0; attempt < 60; ++attempt) {
    const auto operation = run();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (const auto span = operation->deviceSpan()) return span;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  return std::nullopt;
}

TEST_F(StreamQueueTest, TheDeviceTellsWhenItDidAnOperation) {
  const auto queue = makeQueue();
  setLive("CTRAN_GPU_TIMES", "1");
  for (const bool aside : {false, true}) {
    uint64_t called = 0, opened = 0;
    const auto span = spanOf([&] {
      called = ticks();
      const auto operation = enqueue(*queue, aside);
      std::this_thread::sleep_for(Milliseconds(20));
      opened = ticks();
      gate.letOnePass();
      operation->wait();
      return operation;
    });
    ASSERT_TRUE(span);
    // The clocks agree but for a look of 2 ms, and drift.
    const uint64_t slack = (opened - called) / 4;
    EXPECT_GT(span->startedAt + slack, called);
    EXPECT_LE(span->startedAt, span->endedAt);
    EXPECT_GT(span->endedAt + slack, opened);
    EXPECT_LT(span->endedAt, ticks());
  }
  setLive("CTRAN_GPU_TIMES", "0");
  const auto operation = enqueue(*queue);
  gate.open();
  operation->wait();
  EXPECT_FALSE(operation->deviceSpan());
}

TEST_F(StreamQueueTest, BuffersStayUntilTheOperationHasEnded) {
  const auto queue = makeQueue();
  auto buffer = std::make_shared<int>(1);
  const std::weak_ptr<int> left = buffer;
  enqueue(*queue, false, Milliseconds(60'000), std::exchange(buffer, nullptr));
  queue->inspect();
  EXPECT_FALSE(left.expired());
  gate.open();
  queue->drain();
  EXPECT_TRUE(left.expired());
}

TEST_F(StreamQueueTest, AnAllocatorThatKeepsTheOrderOfTheStreamNeedsNoHelpOnIt) {
  StreamQueueOptions ordered = options();
  ordered.freesInStreamOrder = true;
  const auto queue = makeQueue(ordered);
  const auto buffer = std::make_shared<int>(1);
  const auto here = enqueue(*queue, false, Milliseconds(60'000), buffer);
  EXPECT_EQ(buffer.use_count(), 1);
  const auto aside = enqueue(*queue, true, Milliseconds(60'000), buffer);
  EXPECT_EQ(buffer.use_count(), 2);
  aside->makeWait(second.get());  // not the stream in whose order the buffer is freed
  EXPECT_EQ(buffer.use_count(), 2);
  aside->makeWait(first.get());
  EXPECT_EQ(buffer.use_count(), 1);
  gate.open();
  queue->drain();
}

TEST_F(StreamQueueTest, AnOperationAsideRunsBehindWhatTheCallersStreamHolds) {
  const auto queue = makeQueue();
  gate.put(first.get());
  const auto placement = queue->place(first.get(), true);
  EXPECT_EQ(placement.stream, queue->ownStream());
  EXPECT_NE(placement.stream, first.get());
  const auto aside =
      queue->track(placement, {.name = "barrier", .timeout = Milliseconds(60'000)}, nullptr);
  EXPECT_FALSE(aside->waitFor(Milliseconds(2)));
  gate.open();
  aside->wait();
}

TEST_F(StreamQueueTest, TheCallersStreamWaitsForAnOperationOfHighPriority) {
  const auto queue = makeQueue();
  gate.put(first.get());
  const auto placement = queue->place(first.get(), false, true);
  EXPECT_NE(placement.stream, first.get());
  EXPECT_NE(placement.stream, queue->ownStream());
  EXPECT_EQ(placement.stream, queue->ownStream(true));
  const auto urgent =
      queue->track(placement, {.name = "barrier", .timeout = Milliseconds(60'000)}, nullptr);
  EXPECT_FALSE(urgent->waitFor(Milliseconds(2)));
  gate.open();
  synchronize(first.get());
  EXPECT_EQ(urgent->state(), WorkState::Completed);
}

TEST_F(StreamQueueTest, AStreamThatIsMadeToWaitGoesOnAfterTheOperation) {
  const auto queue = makeQueue();
  const auto operation = enqueue(*queue, true);
  operation->makeWait(second.get());
  EXPECT_EQ(gpu::Driver::get().streamQuery(second.get()), gpu::kNotReady);
  gate.open();
  synchronize(second.get());
  EXPECT_EQ(operation->state(), WorkState::Completed);
}

TEST_F(StreamQueueTest, AStreamCanBeOrderedBehindTheOperationsOfAllOthers) {
  const auto queue = makeQueue();
  queue->orderAllBefore(second.get());  // there are none
  synchronize(second.get());
  const auto here = enqueue(*queue);
  const auto placement = queue->place(first.get(), true);
  const auto aside =
      queue->track(placement, {.name = "barrier", .timeout = Milliseconds(60'000)}, nullptr);
  queue->orderAllBefore(second.get());
  EXPECT_EQ(gpu::Driver::get().streamQuery(second.get()), gpu::kNotReady);
  gate.open();
  synchronize(second.get());
  EXPECT_EQ(here->state(), WorkState::Completed);
  EXPECT_EQ(aside->state(), WorkState::Completed);
}

TEST_F(StreamQueueTest, TheWatchdogBreaksTheQueueOfALateOperation) {
  const auto queue = makeQueue();
  Watchdog::add(queue);
  const auto openGate = std::make_shared<std::function<void()>>([this] { gate.open(); });
  queue->onBreak(openGate);
  const auto operation = enqueue(*queue, false, Milliseconds(20));
  const Error error = errorOf([&] { operation->wait(); });
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_STREQ(error.what(), "all_reduce of communicator 'test' (rank 1 of 4) is late");
  EXPECT_EQ(operation->state(), WorkState::Failed);
  EXPECT_EQ(operation->failure(), ErrorKind::Timeout);
  EXPECT_EQ(queue->endings, 1);
  EXPECT_EQ(errorOf([&] { queue->throwIfBroken(); }).kind(), ErrorKind::Timeout);
  EXPECT_EQ(errorOf([&] { operation->makeWait(second.get()); }).kind(), ErrorKind::Timeout);
}

TEST_F(StreamQueueTest, TheFirstErrorStands) {
  const auto queue = makeQueue();
  queue->abort();
  queue->breakWith(Error(ErrorKind::System, "too late"));
  const Error error = errorOf([&] { queue->throwIfBroken(); });
  EXPECT_EQ(error.kind(), ErrorKind::Aborted);
  EXPECT_EQ(error.ranks(), std::vector<int>{1});
  EXPECT_EQ(queue->endings, 1);
  int calls = 0;
  auto unowned = std::make_shared<std::function<void()>>([&] { ++calls; });
  const std::weak_ptr left = unowned;
  unowned = nullptr;
  queue->onBreak(left);
  EXPECT_EQ(calls, 0);
  const auto owned = std::make_shared<std::function<void()>>([&] { ++calls; });
  queue->onBreak(owned);
  EXPECT_EQ(calls, 1);
}

TEST_F(StreamQueueTest, AnErrorThatTheProgramCanAskForIsReachable) {
  const auto queue = makeQueue();
  const auto operation = enqueue(*queue);
  queue->breakWith(Error(ErrorKind::PeerLost, "a rank has gone", {2}));
  EXPECT_EQ(observer->told(), std::vector<std::string>{"all_reduce failed"});
  EXPECT_EQ(queue->awaited, 0);
  operation->abandon();
  EXPECT_EQ(observer->told().back(), "all_reduce dropped");
}

TEST_F(StreamQueueTest, OthersAreToldBeforeAnErrorThatNobodyCanAskFor) {
  const auto queue = makeQueue();
  enqueue(*queue)->abandon();
  queue->breakWith(Error(ErrorKind::PeerLost, "a rank has gone", {2}));
  EXPECT_EQ(observer->told(), std::vector<std::string>{"all_reduce failed unseen"});
  EXPECT_EQ(queue->awaited, 1);
}

TEST_F(StreamQueueTest, AnErrorThatAWaitingThreadThrowsIsSeen) {
  const auto queue = makeQueue();
  const auto operation = enqueue(*queue);
  std::thread waiting(
      [&] { EXPECT_EQ(errorOf([&] { operation->wait(); }).ranks(), std::vector{2}); });
  while (!operation->isAwaited()) std::this_thread::yield();
  queue->breakWith(Error(ErrorKind::PeerLost, "a rank has gone", {2}));
  waiting.join();
  EXPECT_TRUE(observer->told().empty());
  EXPECT_EQ(observer->broke, 1);
  EXPECT_GT(observer->seenErrors, 0);
}

TEST_F(StreamQueueTest, AReplayThatFailsIsToldAsItsOperation) {
  const auto queue = makeQueue();
  queue->inReplay = "all_gather";
  queue->abort();
  EXPECT_EQ(observer->told(), std::vector<std::string>{"all_gather failed"});
}

TEST_F(StreamQueueTest, AnInterruptEndsAWaitAndNotTheOperation) {
  struct Interrupt {};
  struct Hooks final : WaitHooks {
    void beforeBlocking() override { ++depth; }
    void afterBlocking() override { --depth; }
    void interrupted() override { throw Interrupt(); }
    int depth = 0;
  } hooks;
  const auto queue = makeQueue();
  const auto operation = enqueue(*queue);
  EXPECT_THROW(operation->wait(&hooks), Interrupt);
  EXPECT_THROW(queue->drain(&hooks), Interrupt);
  EXPECT_EQ(hooks.depth, 0);
  EXPECT_FALSE(queue->isBroken());
  gate.open();
  operation->wait(&hooks);
}

TEST_F(StreamQueueTest, AnInterruptOfACallThatWaitsForItsWorksBreaksTheCommunicator) {
  struct Interrupt {};
  struct Hooks final : WaitHooks {
    void interrupted() override { throw Interrupt(); }
  } hooks;
  const auto queue = makeQueue();
  const std::shared_ptr<Work> works[] = {enqueue(*queue)};
  EXPECT_THROW(Work::finish(works, &hooks), Interrupt);
  const Error error = errorOf([&] { queue->throwIfBroken(); });
  EXPECT_EQ(error.kind(), ErrorKind::Aborted);
  EXPECT_EQ(error.op(), "all_reduce");
}

TEST_F(StreamQueueTest, TheQueueLivesUntilItsOperationsHaveEnded) {
  auto queue = makeQueue();
  Watchdog::add(queue);
  const std::weak_ptr<Queue> left = queue;
  enqueue(*queue);
  queue = nullptr;
  EXPECT_FALSE(left.expired());
  gate.open();
  const auto giveUp = std::chrono::steady_clock::now() + kGuard;
  while (!left.expired() && std::chrono::steady_clock::now() < giveUp) std::this_thread::yield();
  EXPECT_TRUE(left.expired());
}

TEST_F(StreamQueueTest, AChildLeavesTheDeviceAlone) {
  if (kThreadSanitizer) GTEST_SKIP() << "a fork with threads";
  const auto queue = makeQueue();
  ForkedRanks child(1, [&](int) {
    EXPECT_FALSE(queue->belongsHere());
    queue->abort();
    EXPECT_FALSE(queue->isBroken());
    EXPECT_EQ(queue->endings, 0);
  });
  child.expectSuccess();
}

}  // namespace
}  // namespace ctran::testing
