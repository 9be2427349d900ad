#include "ctran/trace/operation_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace ctran {
namespace {

using State = OperationRecord::State;

OperationRecord recordOf(uint64_t sequence) {
  return {sequence, 3 * sequence, 5 * sequence, 7 * sequence, State::Running};
}

TEST(OperationRing, TellsWhetherTheLastOperationHasCompleted) {
  const auto ring = std::make_unique<OperationRing>();
  EXPECT_FALSE(ring->last());
  const uint64_t position = ring->begin(recordOf(1));
  EXPECT_EQ(ring->last()->state, State::Running);
  ring->complete(position);
  EXPECT_EQ(ring->last()->state, State::Completed);
  ring->begin(recordOf(2));
  EXPECT_EQ(ring->last()->sequence, 2U);
  EXPECT_EQ(ring->last()->state, State::Running);
}

TEST(OperationRing, ForgetsTheOldestAndWhetherItHasCompleted) {
  const auto ring = std::make_unique<OperationRing>();
  const uint64_t first = ring->begin(recordOf(1));
  for (uint64_t s = 2; s <= OperationRing::kCapacity + 1; ++s) ring->begin(recordOf(s));
  ring->complete(first);
  EXPECT_FALSE(ring->find(1));
  ASSERT_TRUE(ring->find(2));
  EXPECT_EQ(ring->last()->sequence, OperationRing::kCapacity + 1);
  EXPECT_EQ(ring->last()->state, State::Running);
}

TEST(OperationRing, GivesReadersWholeRecordsOrNone) {
  const auto ring = std::make_unique<OperationRing>();
  std::atomic<bool> stops{false};
  std::thread writer([&] {
    for (uint64_t s = 1; !stops.load(std::memory_order_relaxed); ++s) {
      ring->complete(ring->begin(recordOf(s)));
    }
  });
  for (int seen = 0; seen < 1000;) {
    const auto record = ring->last();
    if (!record) continue;
    ++seen;
    EXPECT_EQ(record->signature, 3 * record->sequence);
    EXPECT_EQ(record->what, 5 * record->sequence);
    EXPECT_EQ(record->count, 7 * record->sequence);
  }
  stops = true;
  writer.join();
}

}  // namespace
}  // namespace ctran
