#include "ctran/reduce/weighted_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/reduce/reduce.h"

namespace ctran {
namespace {

/// Every number of 16 bits: what the kernels make of it is what this makes of it.
TEST(WeightedSum, AgreesWithTheKernelsOnEveryNumberOf16Bits) {
  for (const DataType type : {DataType::Float16, DataType::BFloat16}) {
    std::vector<uint16_t> all(65536), other(65536), expected(65536), got(65536);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = static_cast<uint16_t>(i);
      other[i] = static_cast<uint16_t>(i * 40503 + 12345);
    }
    const auto bytes = [](std::vector<uint16_t>& v) {
      return reinterpret_cast<std::byte*>(v.data());
    };
    const std::byte* sources[] = {bytes(all), bytes(other)};
    reduceFn(ReduceKind::Sum, type)(bytes(expected), sources, 2, all.size(), 0);
    const WeightedSum sum(type);
    std::vector<float> partial(all.size());
    auto* const p = reinterpret_cast<std::byte*>(partial.data());
    sum.add(p, bytes(all), all.size(), 1);
    sum.add(p, bytes(other), all.size(), 1);
    sum.round(bytes(got), p, all.size());
    const uint16_t infinity = type == DataType::Float16 ? 0x7c00 : 0x7f80;
    const auto isNan = [infinity](uint16_t x) { return (x & 0x7fff) > infinity; };
    size_t wrong = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      // 0 + -0 is 0.
      const bool zeros = ((got[i] | expected[i]) & 0x7fff) == 0;
      const bool same = got[i] == expected[i] || (isNan(got[i]) && isNan(expected[i])) || zeros;
      if (!same && ++wrong < 5) {
        ADD_FAILURE() << nameOf(type) << ": " << all[i] << " + " << other[i] << " is "
                      << expected[i] << ", not " << got[i];
      }
    }
    EXPECT_EQ(wrong, 0u);
  }
}

TEST(WeightedSum, AccumulatesInMoreDigitsThanItRoundsTo) {
  // 1 + 2^-9, a hundred times: in bfloat16 each would be lost.
  const WeightedSum sum(DataType::BFloat16);
  const uint16_t one = 0x3f80;
  float partial = 0;
  auto* const p = reinterpret_cast<std::byte*>(&partial);
  sum.add(p, reinterpret_cast<const std::byte*>(&one), 1, 1);
  for (int i = 0; i < 128; ++i) sum.add(p, reinterpret_cast<const std::byte*>(&one), 1, 0x1p-9f);
  EXPECT_EQ(partial, 1.25f);
}

TEST(WeightedSum, OfDoublesIsInDoubles) {
  const WeightedSum sum(DataType::Float64);
  const double row[] = {1.0, 0x1p-40};
  double partial[] = {1.0, 1.0};
  double rounded[] = {0, 0};
  sum.add(reinterpret_cast<std::byte*>(partial), reinterpret_cast<const std::byte*>(row), 2, 0.5f);
  sum.addPartial(reinterpret_cast<std::byte*>(partial), reinterpret_cast<const std::byte*>(row), 2);
  sum.round(reinterpret_cast<std::byte*>(rounded), reinterpret_cast<std::byte*>(partial), 2);
  EXPECT_EQ(rounded[0], 2.5);
  EXPECT_EQ(rounded[1], 1.0 + 1.5 * 0x1p-40);
}

TEST(WeightedSum, OfWhatHasNoSumIsRefused) {
  for (const DataType type : {DataType::Int32, DataType::Bool, DataType::Opaque2}) {
    EXPECT_FALSE(WeightedSum::isSupported(type));
    EXPECT_THROW(static_cast<void>(WeightedSum(type)), Error);
  }
}

}  // namespace
}  // namespace ctran
