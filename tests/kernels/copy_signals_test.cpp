// What stands between the copies of copy engines: two ranks, and two slots that one fills and the
// other empties. ThreadSanitizer sees if a signal is missing, or comes too early.
#include <gtest/gtest.h>

#include "ctran/collective/exchange/copy_signals.cuh"
#include "tests/kernels/device_world.h"

namespace ctran::device {
namespace {

constexpr u32 kSlots = 2;

/// The words of the sender, then those of the receiver, of every slot.
struct Words {
  u32 sent[kSlots], credit[kSlots], received[kSlots], ready[kSlots];
};

CopySignalArguments argumentsOf(const Team& team, u32* uses, u32* flag, u32 ahead) {
  return {team, uses, flag, 1 - team.rank, ahead};
}

void expectDelivery(u32 chunks, u32 before) {
  DeviceWorld world(2, 64, 0, {1, 1});
  Words words;
  for (u32 s = 0; s < kSlots; ++s) {
    words.sent[s] = words.credit[s] = words.received[s] = words.ready[s] = before;
  }
  u32 slots[kSlots] = {};
  std::vector<u32> arrived(chunks);
  world.run(
      {0, 1}, chunks,
      [](u32) {
        return DeviceWorld::Grid{1, 1};
      },
      [&](u32 rank, u32 k, const Block& block) {
        const u32 s = k % kSlots;
        const Team& team = world.team(rank);
        if (rank == 0) {
          waitForCopy(argumentsOf(team, &words.sent[s], &words.credit[s], 0), block);
          slots[s] = k + 100;
          signalCopy(argumentsOf(team, &words.sent[s], &words.ready[s], 0), block);
        } else {
          waitForCopy(argumentsOf(team, &words.received[s], &words.ready[s], 1), block);
          arrived[k] = slots[s];
          signalCopy(argumentsOf(team, &words.received[s], &words.credit[s], 0), block);
        }
      });
  for (u32 k = 0; k < chunks; ++k) EXPECT_EQ(arrived[k], k + 100);
}

TEST(CopySignals, ChunksArriveInTheirOrder) { expectDelivery(200, 0); }

TEST(CopySignals, CountsMayWrapAround) { expectDelivery(20, 0xfffffffcu); }

TEST(CopySignals, EveryWaitEndsAndNamesTheRank) {
  for (const bool aborts : {false, true}) {
    DeviceWorld world(2, 64, 0, {1, 1});
    if (aborts) world.control(1).abort = 1;
    world.control(1).timeoutNs = 20000000;
    u32 received = 0, ready = 0, credit = 0;
    world.run(
        {1}, 2,
        [](u32) {
          return DeviceWorld::Grid{1, 1};
        },
        [&](u32, u32, const Block& block) {
          const Team& team = world.team(1);
          waitForCopy(argumentsOf(team, &received, &ready, 1), block);
          signalCopy(argumentsOf(team, &received, &credit, 0), block);
        });
    EXPECT_EQ(world.report(1).state, aborts ? kAborted : kTimedOut);
    EXPECT_EQ(world.report(1).waitedFor[0], world.report(1).epoch);
    EXPECT_EQ(credit, 0u) << "what has not arrived was signalled";
  }
}

}  // namespace
}  // namespace ctran::device
