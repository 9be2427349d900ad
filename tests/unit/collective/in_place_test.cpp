#include "ctran/collective/in_place.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/overlap.h"
#include "ctran/collective/row_exchange.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

constexpr int kSize = 4, kRank = 1;
constexpr size_t kCount = 8;  // of a block

std::array<std::byte, 256> memory;

Collective call(Kind kind, size_t input, size_t output) {
  Collective c;
  c.kind = kind;
  c.root = kRank;
  c.count = kCount;
  c.input = memory.data() + input;
  c.output = memory.data() + output;
  return c;
}

std::vector<Block> listed(std::initializer_list<Block> blocks) { return blocks; }
Block at(size_t offset, size_t count = kCount) { return {memory.data() + offset, count}; }

std::string refusal(const Collective& c, int rank = kRank) {
  try {
    validate(c, rank, kSize);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
    return error.what();
  }
  return {};
}

/// Whether it is refused with both ranges.
void expectRefused(const Collective& c, size_t input, size_t inputBytes, size_t output,
                   size_t outputBytes) {
  const std::string said = refusal(c);
  for (const MemoryRange& range : {MemoryRange{memory.data() + input, inputBytes},
                                   MemoryRange{memory.data() + output, outputBytes}}) {
    EXPECT_NE(said.find(nameOf(range)), std::string::npos) << c.describe() << ": " << said;
  }
}

TEST(InPlace, IsOnePlaceOfEachCollective) {
  constexpr size_t kAll = kSize * kCount, kOwn = kRank * kCount;
  struct Row {
    Kind kind;
    size_t inputBytes, outputBytes, input, output;  // the offsets of a call in place
  };
  const Row rows[] = {
      {Kind::AllReduce, kCount, kCount, 100, 100},
      {Kind::Reduce, kCount, kCount, 100, 100},
      {Kind::AllGather, kCount, kAll, 100 + kOwn, 100},
      {Kind::Gather, kCount, kAll, 100 + kOwn, 100},
      {Kind::ReduceScatter, kAll, kCount, 100, 100 + kOwn},
      {Kind::Scatter, kAll, kCount, 100, 100 + kOwn},
      {Kind::AllToAll, kAll, kAll, 100, 100},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(refusal(call(row.kind, row.input, row.output)), "") << nameOf(row.kind);
    for (size_t output = 40; output < 170; ++output) {
      const bool apart =
          output + row.outputBytes <= row.input || row.input + row.inputBytes <= output;
      const Collective c = call(row.kind, row.input, output);
      if (apart || output == row.output) {
        EXPECT_EQ(refusal(c), "") << nameOf(row.kind) << " at " << output;
      } else {
        expectRefused(c, row.input, row.inputBytes, output, row.outputBytes);
      }
    }
  }
}

TEST(InPlace, OnlyWhoHasBothIsAsked) {
  for (const Kind kind : {Kind::Reduce, Kind::Gather, Kind::Scatter}) {
    EXPECT_NE(refusal(call(kind, 100, 101)), "");
    EXPECT_EQ(refusal(call(kind, 100, 101), kRank + 1), "");
  }
  for (const Kind kind : {Kind::Barrier, Kind::Broadcast, Kind::Send, Kind::Recv}) {
    EXPECT_EQ(refusal(call(kind, 100, 101)), "");
  }
  Collective nothing = call(Kind::AllReduce, 100, 100);
  nothing.count = 0;
  EXPECT_EQ(refusal(nothing), "");
}

TEST(InPlace, OneBlockIsComparedWithAllListedOnes) {
  for (const Kind kind : {Kind::AllGather, Kind::AllGatherV}) {
    Collective c = call(kind, 100, 0);
    c.outputs = listed({at(0), at(100), at(200), at(50)});
    EXPECT_EQ(refusal(c), "");
    c.outputs[3] = at(93);
    expectRefused(c, 100, kCount, 93, kCount);
    c.outputs = listed({at(0), at(50), at(100), at(200)});  // another rank's block
    expectRefused(c, 100, kCount, 100, kCount);
  }
  for (const Kind kind : {Kind::ReduceScatter, Kind::ReduceScatterV}) {
    Collective c = call(kind, 0, 100);
    c.inputs = listed({at(0), at(100), at(200), at(50)});
    EXPECT_EQ(refusal(c), "");
    c.inputs[1] = at(99);
    expectRefused(c, 99, kCount, 100, kCount);
  }
}

TEST(InPlace, OfTwoListsEachBlockMayBeTheOneOfItsNumber) {
  Collective c = call(Kind::AllToAllV, 0, 0);
  c.inputs = listed({at(0), at(20, 5), at(40, 0), at(60)});
  c.outputs = c.inputs;
  EXPECT_EQ(refusal(c), "");
  c.outputs[1] = at(20, 9);  // more comes than goes
  EXPECT_EQ(refusal(c), "");
  c.outputs[1] = at(22, 5);
  expectRefused(c, 20, 5, 22, 5);
  // The same tensor, with other splits.
  c.inputs = listed({at(0, 2), at(2, 4), at(6, 2), at(8, 8)});
  c.outputs = listed({at(0, 2), at(2, 6), at(100, 0), at(100, 8)});
  expectRefused(c, 6, 2, 2, 6);
  c.inputs = listed({at(0, 0), at(0, 4), at(0, 0), at(4, 4)});
  c.outputs = listed({at(0, 4), at(4, 0), at(4, 0), at(4, 4)});
  expectRefused(c, 0, 4, 0, 4);
  // What goes may be the same for several ranks.
  c.inputs = listed({at(0), at(0), at(0), at(0)});
  c.outputs = listed({at(100), at(108), at(116), at(8)});
  EXPECT_EQ(refusal(c), "");
}

TEST(InPlace, RowsNeverAre) {
  std::array<int64_t, kSize> counts{};
  auto rows = std::make_shared<RowExchange>();
  rows->inputRows = 2;
  rows->outputRows = 3;
  rows->sendCounts = counts.data();
  Collective c = call(Kind::AllToAllVDynamic, 100, 116);
  c.rows = rows;
  EXPECT_EQ(refusal(c), "");
  c.output -= 1;
  expectRefused(c, 100, 16, 115, 24);
  c.output = memory.data() + 100;
  expectRefused(c, 100, 16, 100, 24);
}

TEST(InPlace, EndsOfAddressSpacesDoNotWrap) {
  const MemoryRange last{reinterpret_cast<const void*>(UINTPTR_MAX - 15), 16};
  EXPECT_FALSE(overlap(last, {nullptr, 16}));
  EXPECT_TRUE(overlap(last, {reinterpret_cast<const void*>(UINTPTR_MAX - 3), 16}));
  EXPECT_FALSE(overlap(last, {last.data, 0}));
}

}  // namespace
}  // namespace ctran
