#include "ctran/stream/replays.h"

#include <atomic>
#include <thread>

#include "ctran/stream/watchdog.h"
#include "tests/unit/stream/stream_fixture.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

constexpr std::chrono::milliseconds kTimeout{100};

class ReplaysTest : public StreamTest {
 protected:
  /// A graph of two operations; the gate is in the second.
  gpu::GraphExec captured() {
    const gpu::Graph graph = capture([&] {
      for (const bool isGated : {false, true}) {
        const auto entered = replays->enter(first.get());
        if (isGated) gate.put(first.get());
        replays->leave(*entered, first.get(), isGated ? "all_gather" : "broadcast", isGated ? 2 : 1,
                       kTimeout);
        using Kept = std::pair<std::shared_ptr<Replays>, std::shared_ptr<Replays::Captured>>;
        queue->keepWithGraph(first.get(), std::make_shared<Kept>(replays, entered));
      }
    });
    gpu::GraphExec executable = nullptr;
    const gpu::Driver& driver = gpu::Driver::get();
    gpu::check(driver.graphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
    gpu::check(driver.graphDestroy(graph), "cuGraphDestroy");
    return executable;
  }

  void launch(gpu::GraphExec graph) {
    gpu::check(gpu::Driver::get().graphLaunch(graph, first.get()), "cuGraphLaunch");
  }

  /// Once the second operation runs in a replay that has been seen after `since`.
  Replays::Running running(Replays::Clock::time_point since = {}) {
    std::optional<Replays::Running> found;
    while (!found || found->sequence != 2 || found->since <= since) {
      found = replays->mostUrgent(Replays::Clock::now());
    }
    return *found;
  }

  void awaitEnd(gpu::GraphExec graph) {
    gate.open();
    synchronize(first.get());
    EXPECT_FALSE(replays->mostUrgent(Replays::Clock::now()));
    gpu::check(gpu::Driver::get().graphExecDestroy(graph), "cuGraphExecDestroy");
  }

  const std::shared_ptr<Queue> queue = makeQueue();
  const std::shared_ptr<Replays> replays = std::make_shared<Replays>(runtime, 0, queue->events());
};

TEST_F(ReplaysTest, KnowsWhichOperationOfAGraphRuns) {
  const gpu::GraphExec graph = captured();
  EXPECT_FALSE(replays->mostUrgent(Replays::Clock::now()));
  const auto before = Replays::Clock::now();
  launch(graph);
  const Replays::Running found = running();
  EXPECT_EQ(found.name, "all_gather");
  EXPECT_GE(found.since, before);
  EXPECT_EQ(found.deadline(), found.since + kTimeout);
  EXPECT_EQ(running().since, found.since);  // as long as it is the same replay
  awaitEnd(graph);
}

TEST_F(ReplaysTest, AReplayBehindAnotherHasItsOwnTime) {
  const gpu::GraphExec graph = captured();
  launch(graph);
  const auto since = running().since;
  launch(graph);  // no event of the graph has become ready in between
  EXPECT_EQ(replays->mostUrgent(Replays::Clock::now())->since, since);
  gate.letOnePass();
  EXPECT_GT(running(since).since, since);
  awaitEnd(graph);
}

TEST_F(ReplaysTest, AGraphKeepsItsOperationsAndTheQueue) {
  Watchdog::add(queue);
  const gpu::GraphExec graph = captured();
  EXPECT_TRUE(queue->hasGraphs());
  awaitEnd(graph);
  const auto giveUp = std::chrono::steady_clock::now() + kGuard;
  while (queue->hasGraphs() && std::chrono::steady_clock::now() < giveUp) std::this_thread::yield();
  EXPECT_FALSE(queue->hasGraphs());
}

TEST_F(ReplaysTest, AStreamThatCapturesTakesNoOtherStreamAndNoOlderWork) {
  const auto older = enqueue(*queue);
  const gpu::Graph graph = capture([&] {
    const auto placement = queue->place(first.get(), true);
    EXPECT_TRUE(placement.isCaptured);
    EXPECT_EQ(placement.stream, first.get());
    const Error error = errorOf([&] { older->makeWait(first.get()); });
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
    EXPECT_EQ(error.op(), "all_reduce");
    gate.open();
    older->wait();
    older->makeWait(first.get());  // it has ended: there is nothing to wait for
  });
  gpu::check(gpu::Driver::get().graphDestroy(graph), "cuGraphDestroy");
}

}  // namespace
}  // namespace ctran::testing
