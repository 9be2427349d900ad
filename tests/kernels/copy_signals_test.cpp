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

/// Before and after the ranks meet, each writes what the others have read, and reads what they have
/// written.
void expectBarriers(u32 ranks, u32 threads, u32 before) {
  DeviceWorld world(ranks, 64, 0, {1, threads}, before);
  constexpr u32 kRounds = 50, kBarrier = 70;
  std::vector<u32> words(ranks);
  std::vector<u32> all(ranks);
  for (u32 r = 0; r < ranks; ++r) all[r] = r;
  std::vector<u32> wrong(ranks);
  world.run(
      all, 4 * kRounds,
      [&](u32) {
        return DeviceWorld::Grid{1, threads};
      },
      [&](u32 rank, u32 k, const Block& block) {
        if (k % 2 == 0) return meet({world.team(rank), kBarrier}, block);
        if (block.thread != 0) return;
        if (k % 4 == 1) {
          words[rank] = k + rank;
          return;
        }
        for (u32 r = 0; r < ranks; ++r) wrong[rank] += words[r] != k - 2 + r;
      });
  for (u32 r = 0; r < ranks; ++r) EXPECT_EQ(wrong[r], 0u) << "rank " << r;
}

TEST(CopySignals, RanksMeet) {
  expectBarriers(2, 1, 0);
  expectBarriers(3, 4, 0);
  expectBarriers(4, 2, 0xfffffff0u);
}

TEST(CopySignals, WhoDoesNotComeToABarrierIsNamed) {
  DeviceWorld world(3, 64, 0, {1, 4});
  for (const u32 rank : {0, 2}) world.control(rank).timeoutNs = 20000000;
  world.run(
      {0, 2}, 2,
      [](u32) {
        return DeviceWorld::Grid{1, 4};
      },
      [&](u32 rank, u32, const Block& block) {
        meet({world.team(rank), 5}, block);
      });
  for (const u32 rank : {0, 2}) {
    EXPECT_EQ(world.report(rank).state, kTimedOut);
    EXPECT_EQ(world.report(rank).waitedFor[1], world.report(rank).epoch);
  }
}

}  // namespace
}  // namespace ctran::device
