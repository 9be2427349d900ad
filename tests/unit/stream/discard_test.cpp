#include "ctran/gpu/discard.h"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "ctran/memory/device_sharing.h"
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
  gpu::freeDiscarded();
  EXPECT_FALSE(freed) << "while the operation is launched";
  const auto operation =
      queue->track(*placement, {.name = "barrier", .sequence = 1, .timeout = Milliseconds(60'000)},
                   [] { return nullptr; });
  placement.reset();
  gpu::freeDiscarded();
  EXPECT_FALSE(freed) << "while the operation runs";
  gate.open();
  operation->wait();
  queue->inspect();
  gpu::freeDiscarded();
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

TEST_F(DiscardTest, WaitsForKernelsThatNoQueueKnows) {
  bool freed = false;
  {
    const gpu::Launching launching;
    gate.put(first.get());
    gpu::keepUntilReached(first.get());
  }
  gpu::discard(0, [&] { freed = true; });
  gpu::freeDiscarded();
  EXPECT_FALSE(freed);
  gate.open();
  gpu::check(gpu::Driver::get().streamSynchronize(first.get()), "cuStreamSynchronize");
  gpu::freeDiscarded();
  EXPECT_TRUE(freed);
}

/// The driver refuses to map memory that its owner allocated anew while what was there before is
/// still mapped.
TEST_F(DiscardTest, MemoryIsMappedAnewAfterItsOwnerAllocatedItAnew) {
  const gpu::Driver& driver = gpu::Driver::get();
  std::shared_ptr<void> mapped;
  for (int lap = 0; lap < 3; ++lap) {
    gpu::DevicePtr owned = 0;
    gpu::check(driver.memAlloc(&owned, 4096), "cuMemAlloc");
    const SharedRange range = shareDeviceMemory(owned, 4096);
    mapped = mapDeviceMemory(range, 0);
    *static_cast<int*>(gpu::pointerTo(owned)) = lap;
    EXPECT_EQ(*static_cast<int*>(mapped.get()), lap);
    mapped.reset();
    gpu::check(driver.memFree(owned), "cuMemFree");
  }
}

}  // namespace
}  // namespace ctran::testing
