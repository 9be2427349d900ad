// The signals of windows: one rank puts and signals, the other waits, reads, and signals back.
// ThreadSanitizer sees if one is missing, or comes too early.
#include <gtest/gtest.h>

#include <thread>

#include "ctran/window/signals.cuh"

namespace ctran::device {
namespace {

const u32 kGoOn = 0;

template <class Body, class Arguments>
void launch(const Body& body, const Arguments& arguments) {
  Guard guard{};
  Barrier barrier(1);
  body(arguments, Block{0, 1, 0, 1, &guard, &barrier});
}

/// What one rank's kernels see of a window of two.
struct End {
  u64 word;  ///< which the other one writes
  u64 sent;
  u64 awaited;
};

void send(End& self, End& other) {
  launch(sendSignal, SignalArguments{&other.word, &self.sent, 0});
}

void await(End& self) {
  launch(awaitSignal, AwaitSignalArguments{&self.word, &self.awaited, 0, kEqual, &kGoOn});
}

void expectDelivery(u32 rounds, u64 before) {
  End ends[2] = {{before, before, before}, {before, before, before}};
  u32 memory = 0, wrong = 0;
  std::thread writer([&] {
    for (u32 k = 1; k <= rounds; ++k) {
      memory = k;
      send(ends[0], ends[1]);
      await(ends[0]);
    }
  });
  for (u32 k = 1; k <= rounds; ++k) {
    await(ends[1]);
    wrong += memory != k;
    send(ends[1], ends[0]);
  }
  writer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(ends[1].awaited, before + rounds);
}

TEST(Signals, WhatWasPutBeforeOneIsThere) { expectDelivery(1000, 0); }

TEST(Signals, CountsMayWrapAround) { expectDelivery(20, ~u64{0} - 10); }

TEST(Signals, MayComeAheadOfTheWait) {
  End ends[2] = {};
  for (int k = 0; k < 3; ++k) send(ends[0], ends[1]);
  for (int k = 0; k < 3; ++k) await(ends[1]);
  EXPECT_EQ(ends[1].word, 3u);
}

TEST(Signals, CompareWithoutASign) {
  constexpr u64 kLarge = u64{1} << 63;
  for (const u64 word : {u64{0}, u64{7}, kLarge}) {
    for (const u64 value : {u64{0}, u64{7}, kLarge}) {
      EXPECT_EQ(holds(kEqual, word, value), word == value);
      EXPECT_EQ(holds(kNotEqual, word, value), word != value);
      EXPECT_EQ(holds(kLess, word, value), word < value);
      EXPECT_EQ(holds(kLessOrEqual, word, value), word <= value);
      EXPECT_EQ(holds(kGreater, word, value), word > value);
      EXPECT_EQ(holds(kGreaterOrEqual, word, value), word >= value);
    }
  }
}

TEST(Signals, ThatDoNotComeAreGivenUp) {
  u64 word = 3;
  u32 abort = 0;
  std::thread waiter([&] {
    launch(awaitSignal, AwaitSignalArguments{&word, nullptr, 3, kNotEqual, &abort});
  });
  storeRelaxed(&abort, 1u);
  waiter.join();
}

}  // namespace
}  // namespace ctran::device
