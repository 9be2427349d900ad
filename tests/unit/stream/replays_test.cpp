#include "ctran/stream/replays.h"

#include <atomic>
#include <thread>

#include "ctran/os/shared_memory.h"
#include "ctran/stream/watchdog.h"
#include "ctran/trace/reader.h"
#include "ctran/trace/replay_trace.h"
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
        const ReplayTrace::Call call{
            .number = isGated ? 2U : 1U, .count = 10, .bytes = isGated ? 80U : 40U};
        ReplayTrace::take()->write(recording, {call});
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

  /// Looks, and returns the numbers of the operations that have been seen in replays so far; of one
  /// that runs, negative.
  std::vector<int64_t> recorded() {
    replays->mostUrgent(Replays::Clock::now());
    std::vector<int64_t> numbers;
    const RankRecording rank = readRecording(memory.get())->ranks.at(0);
    EXPECT_EQ(rank.replayed, rank.replays.size());
    for (const auto& one : rank.replays) {
      const auto number = static_cast<int64_t>(one.position);
      numbers.push_back(one.ended == 0 ? -number : number);
      EXPECT_EQ(one.bytes, one.position == 2 ? 80U : 40U);
      EXPECT_GT(one.started, 0);
      EXPECT_TRUE(one.ended == 0 || one.ended >= one.started);
    }
    return numbers;
  }

  /// Looks until the second operation runs that comes behind so many records.
  std::vector<int64_t> runningBehind(size_t records) {
    std::vector<int64_t> found;
    const auto giveUp = std::chrono::steady_clock::now() + kGuard;
    do {
      found = recorded();
    } while ((found.size() <= records || found.back() != -2) &&
             std::chrono::steady_clock::now() < giveUp);
    return found;
  }

  void letThrough() {
    gate.letOnePass();
    synchronize(first.get());
  }

  const UniqueFd memory = createSharedMemory("replays", Recording::bytesFor(1));
  const std::shared_ptr<Recording> recording =
      std::make_shared<Recording>(SharedMapping::map(memory, Recording::bytesFor(1)), 1, 0,
                                  Recording::Who{0, 1, "x", "here", 0, 5});
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

TEST_F(ReplaysTest, AReplayThatRunsHasRecords) {
  using Numbers = std::vector<int64_t>;
  const gpu::GraphExec graph = captured();
  EXPECT_TRUE(readRecording(memory.get())->ranks.at(0).tellsReplays);
  EXPECT_EQ(recorded(), Numbers{});
  launch(graph);
  EXPECT_EQ(runningBehind(1), (Numbers{1, -2}));
  EXPECT_EQ(recorded(), (Numbers{1, -2}));
  letThrough();
  EXPECT_EQ(recorded(), (Numbers{1, 2}));
  EXPECT_EQ(recorded(), (Numbers{1, 2}));
  awaitEnd(graph);
}

TEST_F(ReplaysTest, ReplaysBehindEachOtherHaveTheirOwnRecords) {
  using Numbers = std::vector<int64_t>;
  const gpu::GraphExec graph = captured();
  launch(graph);
  EXPECT_EQ(runningBehind(1), (Numbers{1, -2}));
  launch(graph);
  EXPECT_EQ(recorded(), (Numbers{1, -2}));  // the second has not begun
  gate.letOnePass();
  EXPECT_EQ(runningBehind(3), (Numbers{1, 2, 1, -2}));
  letThrough();
  EXPECT_EQ(recorded(), (Numbers{1, 2, 1, 2}));
  awaitEnd(graph);
}

TEST_F(ReplaysTest, ReplaysBetweenTwoLooksHaveOneRecord) {
  using Numbers = std::vector<int64_t>;
  const gpu::GraphExec graph = captured();
  gate.open();
  for (int i = 0; i < 3; ++i) launch(graph);
  synchronize(first.get());
  EXPECT_EQ(recorded(), (Numbers{1, 2}));
  EXPECT_EQ(recorded(), (Numbers{1, 2}));
  launch(graph);
  synchronize(first.get());
  EXPECT_EQ(recorded(), (Numbers{1, 2, 1, 2}));
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
