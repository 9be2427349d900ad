#include "ctran/gpu/discard.h"

#include <atomic>
#include <optional>
#include <thread>

#include "tests/unit/stream/stream_fixture.h"

namespace ctran::testing {
namespace {

using DiscardTest = StreamTest;

TEST_F(DiscardTest, WaitsUntilWhatIsLaunchedCanBeSeen) {
  const auto queue = makeQueue();
  bool freed = false;
  std::optional placement(queue->place(first.get(), false));
  gate.put(first.get());
  gpu::discard(0, [&] { freed = true; });
  gpu::freeDiscarded([&] { return queue->isIdle(); });
  EXPECT_FALSE(freed) << "while the operation is launched";
  const auto operation =
      queue->track(*placement, {.name = "barrier", .sequence = 1, .timeout = Milliseconds(60'000)},
                   [] { return nullptr; });
  placement.reset();
  gpu::freeDiscarded([&] { return queue->isIdle(); });
  EXPECT_FALSE(freed) << "while the operation runs";
  gate.open();
  operation->wait();
  queue->inspect();
  gpu::freeDiscarded([&] { return queue->isIdle(); });
  EXPECT_TRUE(freed);
}

TEST_F(DiscardTest, LaunchesWaitForWhatIsBeingFreed) {
  std::atomic<bool> begun{false}, goesOn{false}, freed{false};
  gpu::discard(0, [&] {
    begun = true;
    while (!goesOn) std::this_thread::yield();
    freed = true;
  });
  std::thread frees([] { gpu::freeDiscarded(); });
  while (!begun) std::this_thread::yield();
  std::thread launches([&] {
    const gpu::Launching launching;
    EXPECT_TRUE(freed);
  });
  std::this_thread::sleep_for(Milliseconds(20));
  goesOn = true;
  launches.join();
  frees.join();
}

}  // namespace
}  // namespace ctran::testing
