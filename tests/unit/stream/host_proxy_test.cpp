#include "ctran/stream/host_proxy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/stream/stream_fixture.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using namespace std::chrono_literals;

/// With a thread that looks for steps before it sleeps, and with one that does not.
class HostProxyTest : public StreamTest, public ::testing::WithParamInterface<int64_t> {
 protected:
  /// A step that says so when it is done.
  std::shared_ptr<HostProxy::Step> saying(int number, bool captured = false) {
    return proxy.makeStep(
        [this, number] {
          const std::lock_guard lock(mutex);
          said.push_back(number);
        },
        captured);
  }
  std::vector<int> heard() {
    const std::lock_guard lock(mutex);
    return said;
  }

  std::mutex mutex;
  std::vector<int> said;
  std::vector<std::string> failures;
  HostProxy proxy{0, GetParam(),
                  [this](const Error& error) { failures.emplace_back(error.what()); }};
};

TEST_P(HostProxyTest, AStepIsDoneWhenItsStreamHasComeThere) {
  const auto step = saying(1);
  gate.put(first.get());
  proxy.handOver(*step, first.get());
  proxy.await(*step, first.get());
  EXPECT_TRUE(heard().empty());
  gate.open();
  synchronize(first.get());
  EXPECT_EQ(heard(), std::vector{1});
}

TEST_P(HostProxyTest, AStepIsDoneHoweverLateAStreamComesThatWasIdle) {
  for (const auto delay : {0ms, 5ms}) {
    const auto step = saying(1);
    gate.put(first.get());
    proxy.handOver(*step, first.get(), true);
    proxy.await(*step, first.get());
    EXPECT_TRUE(proxy.isBusy());
    std::this_thread::sleep_for(delay);
    EXPECT_TRUE(heard().empty());
    gate.letOnePass();
    synchronize(first.get());
    EXPECT_EQ(heard(), std::vector{1});
    EXPECT_FALSE(proxy.isBusy());
    said.clear();
  }
}

TEST_P(HostProxyTest, AStreamGoesOnUntilItWaits) {
  std::atomic<bool> beyond{false};
  const auto step = proxy.makeStep([&] { awaitFlag(beyond); }, false);
  proxy.handOver(*step, first.get());
  gpu::check(
      gpu::Driver::get().launchHostFunc(
          first.get(), [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &beyond),
      "cuLaunchHostFunc");
  proxy.await(*step, first.get());
  synchronize(first.get());
  EXPECT_FALSE(proxy.isBusy());
}

TEST_P(HostProxyTest, StepsAreDoneInTheOrderInWhichStreamsComeThere) {
  const auto one = saying(1), two = saying(2), three = saying(3);
  gate.put(first.get());
  proxy.handOver(*one, first.get());
  proxy.handOver(*two, second.get());
  proxy.await(*two, second.get());
  synchronize(second.get());
  proxy.handOver(*three, first.get());
  proxy.await(*one, first.get());
  proxy.await(*three, first.get());
  gate.open();
  synchronize(first.get());
  EXPECT_EQ(heard(), (std::vector{2, 1, 3}));
}

TEST_P(HostProxyTest, StepsOfOneStreamKeepTheirOrderHoweverFastItIs) {
  constexpr int kSteps = 24, kRounds = 300;
  std::vector<int> inOrder(kSteps);
  std::iota(inOrder.begin(), inOrder.end(), 0);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::shared_ptr<HostProxy::Step>> steps;
    for (int i = 0; i < kSteps; ++i) steps.push_back(saying(i));
    gate.put(first.get());
    for (const auto& step : steps) proxy.handOver(*step, first.get(), true);
    for (const auto& step : steps) proxy.await(*step, first.get());
    gate.letOnePass();
    synchronize(first.get());
    ASSERT_EQ(heard(), inOrder) << "round " << round;
    said.clear();
  }
}

TEST_P(HostProxyTest, EachReplayHandsItsStepsOver) {
  const gpu::Driver& driver = gpu::Driver::get();
  std::vector<std::shared_ptr<HostProxy::Step>> steps = {saying(1, true), saying(2, true)};
  const gpu::Graph graph = capture([&] {
    for (const auto& step : steps) proxy.handOver(*step, first.get());
    for (const auto& step : steps) proxy.await(*step, first.get());
  });
  EXPECT_TRUE(heard().empty());
  gpu::GraphExec executable = nullptr;
  gpu::check(driver.graphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
  gpu::check(driver.graphDestroy(graph), "cuGraphDestroy");
  for (int replay = 0; replay < 3; ++replay) {
    gpu::check(driver.graphLaunch(executable, first.get()), "cuGraphLaunch");
  }
  synchronize(first.get());
  EXPECT_EQ(heard(), (std::vector{1, 2, 1, 2, 1, 2}));
  gpu::check(driver.graphExecDestroy(executable), "cuGraphExecDestroy");
}

TEST_P(HostProxyTest, AStreamGoesOnAfterAFailure) {
  const auto bad = proxy.makeStep([] { throw Error(ErrorKind::System, "no such step"); }, false);
  const auto good = saying(2);
  for (const auto& step : {bad, good}) {
    proxy.handOver(*step, first.get());
    proxy.await(*step, first.get());
  }
  synchronize(first.get());
  EXPECT_EQ(failures, std::vector<std::string>{"no such step"});
  EXPECT_EQ(heard(), std::vector{2});
}

TEST_P(HostProxyTest, AStoppedProxyLetsStreamsGoOn) {
  const auto step = saying(1);
  proxy.stop();
  proxy.handOver(*step, first.get());
  proxy.await(*step, first.get());
  synchronize(first.get());
  EXPECT_TRUE(heard().empty());
}

TEST_P(HostProxyTest, StepsGoWhenTheirStreamsHaveWaited) {
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> weak = kept;
  {
    const auto step = proxy.makeStep([kept = std::move(kept)] {}, false);
    proxy.handOver(*step, first.get());
    proxy.await(*step, first.get());
  }
  synchronize(first.get());
  EXPECT_FALSE(weak.expired());
  const auto next = saying(2);  // which clears up
  EXPECT_TRUE(weak.expired());
  proxy.handOver(*next, first.get());
  proxy.await(*next, first.get());
  synchronize(first.get());
}

INSTANTIATE_TEST_SUITE_P(, HostProxyTest, ::testing::Values(0, 200'000));

}  // namespace
}  // namespace ctran::testing
