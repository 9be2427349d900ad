// One call gives the same bits on every rank, and in rank order whatever its size.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>

#include "tests/unit/support/cases.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/reference.h"

namespace ctran::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kSize = 4;

Case sumOf(DataType type, size_t count, ReduceKind op = ReduceKind::Sum) {
  Case c;
  c.kind = CollectiveKind::AllReduce;
  c.type = type;
  c.op.kind = op;
  c.count = count;
  c.seed = 7;
  return c;
}

Collective allReduce(const Case& c, const std::byte* input, std::byte* output, size_t count) {
  Collective collective;
  collective.kind = CollectiveKind::AllReduce;
  collective.type = c.type;
  collective.op = c.op;
  collective.count = count;
  collective.input = input;
  collective.output = output;
  return collective;
}

class Bits : public ::testing::TestWithParam<DataType> {};

TEST_P(Bits, AreThoseOfRankOrderHoweverTheCallIsCut) {
  const Case c = sumOf(GetParam(), 150'001);
  const size_t element = sizeOf(c.type);
  Inputs inputs;
  for (int r = 0; r < kSize; ++r) inputs.push_back(inputsOf(c, r, kSize));
  const Bytes expected = expectedOf(c, 0, kSize, inputs)[0];
  const Inputs reversed(inputs.rbegin(), inputs.rend());
  // A sum of four float8_e4m3fn is exact in fp32.
  const bool shows = expectedOf(c, 0, kSize, reversed)[0] != expected;
  ASSERT_EQ(shows, c.type != DataType::Float8E4M3) << "whether the data shows the order";

  runRanks(kSize, [&](Communicator& communicator) {
    const Bytes& input = inputs[communicator.rank()][0];
    Bytes whole;
    for (const size_t piece : {c.count, size_t{100'000}, size_t{17'777}, size_t{1'001}}) {
      Bytes output(input.size(), std::byte{0xa5});
      for (size_t at = 0; at < c.count; at += piece) {
        const size_t count = std::min(piece, c.count - at);
        communicator.run(
            allReduce(c, input.data() + at * element, output.data() + at * element, count));
      }
      EXPECT_EQ(difference(c.type, output.data(), expected), "") << "in pieces of " << piece;
      if (whole.empty()) whole = output;
      EXPECT_TRUE(output == whole) << "in pieces of " << piece;  // NaNs too
    }
  });
}

TEST_P(Bits, AreTheSameOnAllRanksForAnyNumbersAndAlignment) {
  for (const ReduceKind op :
       {ReduceKind::Sum, ReduceKind::Product, ReduceKind::Min, ReduceKind::Max, ReduceKind::Avg}) {
    const Case c = sumOf(GetParam(), 0, op);
    if (!isSupported(op, c.type)) continue;
    std::vector<Bytes> outputs(kSize);
    for (const size_t count : {size_t{5}, size_t{331}, size_t{40'003}}) {
      std::barrier together(kSize);
      runRanks(kSize, [&](Communicator& communicator) {
        const int rank = communicator.rank();
        const size_t bytes = count * sizeOf(c.type);
        // Any bits: NaNs of all kinds, infinities, subnormals; and no rank is aligned like another.
        Bytes input(bytes + 16), output(bytes + 16);
        for (size_t i = 0; i + 8 <= input.size(); i += 8) {
          reference::store(input.data() + i, mix(static_cast<uint64_t>(rank) << 32 | i));
        }
        std::byte* to = output.data() + (rank * 5) % 16;
        communicator.run(allReduce(c, input.data() + rank, to, count));
        outputs[rank].assign(to, to + bytes);
        together.arrive_and_wait();
        EXPECT_TRUE(outputs[rank] == outputs[0]) << nameOf(op) << " of " << count << " on " << rank;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Bits,
                         ::testing::Values(DataType::Float8E4M3, DataType::Float8E5M2,
                                           DataType::Float16, DataType::BFloat16, DataType::Float32,
                                           DataType::Float64, DataType::Complex64,
                                           DataType::Complex128),
                         [](const auto& type) { return std::string(nameOf(type.param)); });

}  // namespace
}  // namespace ctran::testing
