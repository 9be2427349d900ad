#include "ctran/reduce/reduce.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/reference.h"

namespace ctran {
namespace {

constexpr std::byte kPoison{0xa5};

uint64_t mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ x >> 33;
}

/// How wild the numbers are. Ordinary ones differ by position and source and make sums that need
/// rounding; AnyBits has every NaN, infinity and subnormal there is.
enum class Values { Ordinary, AnyBits };

template <class T>
void putPart(std::byte* to, uint64_t random) {
  const double number = static_cast<double>(random % 4097) / 256 - 8;
  reference::store(to, static_cast<T>(random % 61 == 0 ? -0.0 : number));
}

std::vector<std::byte> makeSource(DataType type, Values values, uint64_t seed, size_t count) {
  const size_t size = sizeOf(type);
  std::vector<std::byte> data(count * size);
  for (size_t i = 0; i < count; ++i) {
    std::byte* to = data.data() + i * size;
    const uint64_t random[2] = {mix(seed << 32 ^ i), mix(~(seed << 32 ^ i))};
    std::memcpy(to, random, size);
    if (values == Values::AnyBits) continue;
    reference::withFormat(type, [&](auto get, auto put) {
      using T = decltype(get(to));
      if constexpr (std::is_floating_point_v<T>) {
        // Through the format, so a float8 holds what a float8 can.
        std::byte number[sizeof(T)];
        putPart<T>(number, random[0]);
        put(to, reference::load<T>(number));
      } else if constexpr (!std::is_integral_v<T>) {
        using Part = typename T::value_type;
        putPart<Part>(to, random[0]);
        putPart<Part>(to + sizeof(Part), random[1]);
      }
    });
  }
  return data;
}

/// Bytes at a chosen distance from an aligned address, exactly as many as asked for.
class Misaligned {
 public:
  Misaligned(size_t offset, size_t bytes) : offset_(offset), storage_(offset + bytes, kPoison) {}
  std::byte* data() { return storage_.data() + offset_; }

 private:
  size_t offset_;
  std::vector<std::byte> storage_;
};

std::string hex(const std::byte* p, size_t size) {
  std::string text;
  for (size_t i = size; i-- > 0;) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<int>(p[i]) >> 4];
    text += kDigits[std::to_integer<int>(p[i]) & 15];
  }
  return text;
}

::testing::AssertionResult sameElements(DataType type, const std::byte* got, const std::byte* want,
                                        size_t count) {
  const size_t size = sizeOf(type);
  for (size_t i = 0; i < count; ++i) {
    if (reference::same(type, got + i * size, want + i * size)) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " of " << count << " is 0x" << hex(got + i * size, size)
           << ", should be 0x" << hex(want + i * size, size);
  }
  return ::testing::AssertionSuccess();
}

class Reduce : public ::testing::TestWithParam<std::tuple<Isa, DataType>> {
 protected:
  void SetUp() override {
    if (!isAvailable(isa())) GTEST_SKIP() << "this machine has no " << nameOf(isa());
  }

  Isa isa() const { return std::get<0>(GetParam()); }
  DataType type() const { return std::get<1>(GetParam()); }
  size_t size() const { return sizeOf(type()); }

  template <class Body>
  void forEachKind(Body body) const {
    for (int k = 0; k < kReduceKindCount; ++k) {
      const auto kind = static_cast<ReduceKind>(k);
      if (!isSupported(kind, type())) continue;
      SCOPED_TRACE(std::string(nameOf(kind)));
      body(kind, reduceFnFor(isa(), kind, type()));
      if (::testing::Test::HasFailure()) return;
    }
  }

  // Nothing, one element, and every remainder around the vectors and steps of each instruction set.
  std::vector<size_t> awkwardCounts() const {
    std::vector<size_t> counts = {0, 1, 2, 3, 5, 7};
    for (size_t bytes : {16, 32, 64, 128, 256, 512, 1024}) {
      for (size_t count : {bytes / size() - 1, bytes / size(), bytes / size() + 1}) {
        counts.push_back(count);
      }
    }
    counts.push_back(kMaxCount);
    return counts;
  }

  static constexpr size_t kMaxCount = 1543;
};

// The types that have averages.
class ReduceAverage : public Reduce {};
// The types that have factors.
class ReduceLinear : public Reduce {};

struct Sources {
  Sources(DataType type, Values values, int n, size_t count) {
    for (int s = 0; s < n; ++s) owned.push_back(makeSource(type, values, s + 1, count));
    for (const auto& data : owned) pointers.push_back(data.data());
  }
  std::vector<std::vector<std::byte>> owned;
  std::vector<const std::byte*> pointers;
};

TEST_P(Reduce, EqualsTheReferenceForEveryCountAndAlignment) {
  for (Values values : {Values::Ordinary, Values::AnyBits}) {
    for (int n : {1, 2, 3, 4, 5, 8, testing::kSanitizer ? 17 : 64}) {
      const Sources sources(type(), values, n, kMaxCount);
      forEachKind([&](ReduceKind kind, ReduceFn fn) {
        std::vector<std::byte> want(kMaxCount * size());
        reference::reduce(kind, type(), want.data(), sources.pointers, kMaxCount, 0);
        size_t round = 0;
        for (size_t count : awkwardCounts()) {
          SCOPED_TRACE(std::to_string(n) + " sources of " + std::to_string(count));
          // Each source at an alignment of its own, other ones in each round.
          const size_t bytes = count * size();
          std::vector<Misaligned> moved;
          std::vector<const std::byte*> pointers;
          for (int s = 0; s < n; ++s) {
            moved.emplace_back((round * 5 + s * 3) % 67, bytes);
            std::copy_n(sources.pointers[s], bytes, moved.back().data());
            pointers.push_back(moved.back().data());
          }
          Misaligned got(round * 7 % 61, bytes + 64);
          fn(got.data(), pointers.data(), n, count, 0);
          ASSERT_TRUE(sameElements(type(), got.data(), want.data(), count));
          for (size_t i = 0; i < 64; ++i) {
            ASSERT_EQ(got.data()[bytes + i], kPoison) << "wrote behind the result";
          }
          ++round;
        }
      });
    }
  }
}

TEST_P(Reduce, MayWriteOntoAnyOfItsSources) {
  constexpr size_t kCount = 777;
  for (int n : {1, 2, 3, 4, 6}) {
    forEachKind([&](ReduceKind kind, ReduceFn fn) {
      const Sources original(type(), Values::Ordinary, n, kCount);
      std::vector<std::byte> want(kCount * size());
      reference::reduce(kind, type(), want.data(), original.pointers, kCount, 0);
      for (int target = 0; target < n; ++target) {
        SCOPED_TRACE("onto source " + std::to_string(target) + " of " + std::to_string(n));
        Sources sources = original;
        for (int s = 0; s < n; ++s) sources.pointers[s] = sources.owned[s].data();
        fn(sources.owned[target].data(), sources.pointers.data(), n, kCount, 0);
        ASSERT_TRUE(sameElements(type(), sources.owned[target].data(), want.data(), kCount));
        for (int s = 0; s < n; ++s) {
          if (s != target) {
            ASSERT_EQ(sources.owned[s], original.owned[s]) << "source " << s << " changed";
          }
        }
      }
    });
  }
}

// Divisors beyond the largest number of 8 and 16 bits, too.
TEST_P(ReduceAverage, DividesByTheDivisorOrElseByTheNumberOfSources) {
  constexpr size_t kCount = 333;
  const ReduceFn fn = reduceFnFor(isa(), ReduceKind::Avg, type());
  std::vector<std::byte> got(kCount * size()), want(kCount * size());
  for (const Values values : {Values::Ordinary, Values::AnyBits}) {
    const Sources sources(type(), values, 3, kCount);
    for (int divisor : {0, 1, 3, 7, 128, 200, 256, 1000, 65536, 100000}) {
      SCOPED_TRACE(divisor);
      fn(got.data(), sources.pointers.data(), 3, kCount, divisor);
      reference::reduce(ReduceKind::Avg, type(), want.data(), sources.pointers, kCount, divisor);
      ASSERT_TRUE(sameElements(type(), got.data(), want.data(), kCount));
    }
  }
}

TEST_P(ReduceLinear, ScalingEqualsTheReference) {
  const ScaleFn fn = scaleFnFor(isa(), type());
  for (Values values : {Values::Ordinary, Values::AnyBits}) {
    const std::vector<std::byte> source = makeSource(type(), values, 9, kMaxCount);
    for (double factor : {0.0, 1.0, -1.0, 0.1, 3.0, 1e30}) {
      std::vector<std::byte> want(kMaxCount * size());
      reference::scale(type(), want.data(), source.data(), kMaxCount, factor);
      for (size_t count : awkwardCounts()) {
        SCOPED_TRACE(std::to_string(factor) + " times " + std::to_string(count));
        Misaligned data(count % 5, count * size());
        std::copy_n(source.data(), count * size(), data.data());
        fn(data.data(), data.data(), count, factor);
        ASSERT_TRUE(sameElements(type(), data.data(), want.data(), count));
      }
    }
  }
}

/// Memory whose last byte is the last of a page, before one that cannot be touched.
class AtTheEdge {
 public:
  explicit AtTheEdge(size_t bytes) : page_(sysconf(_SC_PAGESIZE)), bytes_(bytes) {
    void* base =
        mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw systemError("mmap", errno);
    base_ = static_cast<std::byte*>(base);
    if (mprotect(base_ + page_, page_, PROT_NONE) != 0) throw systemError("mprotect", errno);
  }
  ~AtTheEdge() { munmap(base_, 2 * page_); }
  AtTheEdge(const AtTheEdge&) = delete;
  AtTheEdge& operator=(const AtTheEdge&) = delete;
  std::byte* data() { return base_ + page_ - bytes_; }

 private:
  size_t page_;
  size_t bytes_;
  std::byte* base_;
};

TEST_P(Reduce, TouchesNoMemoryBehindItsOperands) {
  for (size_t count : awkwardCounts()) {
    const size_t bytes = count * size();
    if (bytes > 4096) continue;
    AtTheEdge a(bytes), b(bytes), got(bytes);
    const Sources sources(type(), Values::Ordinary, 2, count);
    std::copy_n(sources.pointers[0], bytes, a.data());
    std::copy_n(sources.pointers[1], bytes, b.data());
    const std::byte* edge[] = {a.data(), b.data()};
    std::vector<std::byte> want(bytes);
    reference::reduce(ReduceKind::Sum, type(), want.data(), sources.pointers, count, 0);
    reduceFnFor(isa(), ReduceKind::Sum, type())(got.data(), edge, 2, count, 0);
    ASSERT_TRUE(sameElements(type(), got.data(), want.data(), count));
  }
}

std::vector<DataType> typesWith(ReduceKind kind) {
  std::vector<DataType> types;
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    if (isSupported(kind, type)) types.push_back(type);
  }
  return types;
}

auto onAllIsas(ReduceKind kind) {
  return ::testing::Combine(::testing::ValuesIn(kAllIsas), ::testing::ValuesIn(typesWith(kind)));
}

std::string nameOfTest(const ::testing::TestParamInfo<std::tuple<Isa, DataType>>& info) {
  const auto [isa, type] = info.param;
  return std::string(nameOf(isa)) + "_" + std::string(nameOf(type));
}

INSTANTIATE_TEST_SUITE_P(All, Reduce, onAllIsas(ReduceKind::Sum), nameOfTest);
INSTANTIATE_TEST_SUITE_P(All, ReduceAverage, onAllIsas(ReduceKind::Avg), nameOfTest);
INSTANTIATE_TEST_SUITE_P(All, ReduceLinear, onAllIsas(ReduceKind::PremulSum), nameOfTest);

constexpr DataType kSmallFloats[] = {DataType::Float8E4M3, DataType::Float8E5M2, DataType::Float16,
                                     DataType::BFloat16};

const reference::SmallFormat& formatOf(DataType type) {
  switch (type) {
    case DataType::Float8E4M3:
      return reference::kE4M3;
    case DataType::Float8E5M2:
      return reference::kE5M2;
    case DataType::Float16:
      return reference::kHalf;
    default:
      return reference::kBrain;
  }
}

class SmallFloats : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isAvailable(GetParam())) GTEST_SKIP() << "this machine has no " << nameOf(GetParam());
  }
};

// A sum of one decodes and encodes, and must give back the code.
TEST_P(SmallFloats, EveryCodeSurvives) {
  for (const DataType type : kSmallFloats) {
    SCOPED_TRACE(std::string(nameOf(type)));
    const reference::SmallFormat& format = formatOf(type);
    const size_t count = size_t{1} << format.bits;
    std::vector<std::byte> codes(count * sizeOf(type)), got(codes.size());
    for (size_t code = 0; code < count; ++code) {
      std::memcpy(codes.data() + code * sizeOf(type), &code, sizeOf(type));
    }
    const std::byte* source = codes.data();
    reduceFnFor(GetParam(), ReduceKind::Sum, type)(got.data(), &source, 1, count, 0);
    ASSERT_TRUE(sameElements(type, got.data(), codes.data(), count));
  }
}

// Between any two neighbours: the middle goes to the even one, a little less or more to the nearer.
TEST_P(SmallFloats, RoundToNearestEven) {
  for (const DataType type : kSmallFloats) {
    SCOPED_TRACE(std::string(nameOf(type)));
    const reference::SmallFormat& format = formatOf(type);
    // Not the two largest exponents: of bfloat16, three such numbers have no sum in fp32.
    const uint32_t exponents = reference::largestMagnitude(format) >> format.mantissa;
    const uint32_t last = (exponents - 2) << format.mantissa;
    std::vector<std::byte> low, high, want;
    const auto append = [&](std::vector<std::byte>& to, uint32_t code) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&code);
      to.insert(to.end(), bytes, bytes + sizeOf(type));
    };
    // (low + high) / 2 is the middle, exact in fp32.
    for (uint32_t code = 0; code < last; ++code) {
      append(low, code);
      append(high, code + 1);
      append(want, code % 2 == 0 ? code : code + 1);
    }
    const std::byte* sources[] = {low.data(), high.data()};
    std::vector<std::byte> got(low.size());
    reduceFnFor(GetParam(), ReduceKind::Avg, type)(got.data(), sources, 2, last, 0);
    ASSERT_TRUE(sameElements(type, got.data(), want.data(), last));
    // (2 low + high) / 3 is nearer to the lower one.
    const std::byte* nearLow[] = {low.data(), high.data(), low.data()};
    reduceFnFor(GetParam(), ReduceKind::Avg, type)(got.data(), nearLow, 3, last, 0);
    ASSERT_TRUE(sameElements(type, got.data(), low.data(), last));
    const std::byte* nearHigh[] = {high.data(), low.data(), high.data()};
    reduceFnFor(GetParam(), ReduceKind::Avg, type)(got.data(), nearHigh, 3, last, 0);
    ASSERT_TRUE(sameElements(type, got.data(), high.data(), last));
  }
}

INSTANTIATE_TEST_SUITE_P(All, SmallFloats, ::testing::ValuesIn(kAllIsas),
                         [](const auto& info) { return std::string(nameOf(info.param)); });

float sumOfTwo(DataType type, double a, double b) {
  const reference::SmallFormat& format = formatOf(type);
  const uint32_t codes[] = {reference::encode(a, format), reference::encode(b, format)};
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&codes[0]),
                                reinterpret_cast<const std::byte*>(&codes[1])};
  uint32_t result = 0;
  reduceFn(ReduceKind::Sum, type)(reinterpret_cast<std::byte*>(&result), sources, 2, 1, 0);
  return static_cast<float>(reference::decode(result, format));
}

TEST(ReduceSpecials, OverflowIsInfiniteOrNaNWhereThereIsNoInfinity) {
  EXPECT_EQ(sumOfTwo(DataType::Float16, 65504, 15), 65504);
  EXPECT_TRUE(std::isinf(sumOfTwo(DataType::Float16, 65504, 16)));
  EXPECT_TRUE(std::isinf(sumOfTwo(DataType::Float8E5M2, 57344, 4096)));
  EXPECT_EQ(sumOfTwo(DataType::Float8E4M3, 448, 16), 448);
  EXPECT_TRUE(std::isnan(sumOfTwo(DataType::Float8E4M3, 448, 18)));
  EXPECT_TRUE(std::isnan(sumOfTwo(DataType::Float8E4M3, -448, -448)));
}

TEST(ReduceSpecials, SmallFloatsAreRoundedOnceAtTheEnd) {
  // In bfloat16 256 + 1 is 256 again; in fp32 the ones add up.
  std::vector<uint16_t> values(65, static_cast<uint16_t>(reference::encode(1, reference::kBrain)));
  values[0] = static_cast<uint16_t>(reference::encode(256, reference::kBrain));
  std::vector<const std::byte*> sources;
  for (const uint16_t& value : values) {
    sources.push_back(reinterpret_cast<const std::byte*>(&value));
  }
  uint16_t sum = 0;
  reduceFn(ReduceKind::Sum, DataType::BFloat16)(reinterpret_cast<std::byte*>(&sum), sources.data(),
                                                65, 1, 0);
  EXPECT_EQ(reference::decode(sum, reference::kBrain), 320);
}

template <class T>
T reduceTwo(ReduceKind kind, DataType type, T a, T b) {
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(&a),
                                reinterpret_cast<const std::byte*>(&b)};
  T result;
  reduceFn(kind, type)(reinterpret_cast<std::byte*>(&result), sources, 2, 1, 0);
  return result;
}

TEST(ReduceSpecials, MinAndMaxOrderZerosAndPropagateNaN) {
  const auto two = [](ReduceKind kind, float a, float b) {
    return reduceTwo(kind, DataType::Float32, a, b);
  };
  EXPECT_TRUE(std::signbit(two(ReduceKind::Min, -0.0f, 0.0f)));
  EXPECT_TRUE(std::signbit(two(ReduceKind::Min, 0.0f, -0.0f)));
  EXPECT_FALSE(std::signbit(two(ReduceKind::Max, -0.0f, 0.0f)));
  EXPECT_FALSE(std::signbit(two(ReduceKind::Max, 0.0f, -0.0f)));
  EXPECT_TRUE(std::signbit(two(ReduceKind::Sum, -0.0f, -0.0f)));
  for (ReduceKind kind : {ReduceKind::Min, ReduceKind::Max}) {
    EXPECT_TRUE(std::isnan(two(kind, NAN, 1.0f)));
    EXPECT_TRUE(std::isnan(two(kind, -1.0f, -NAN)));
  }
}

TEST(ReduceSpecials, IntegersWrapAroundAndBoolsAreZeroOrOne) {
  EXPECT_EQ(reduceTwo(ReduceKind::Sum, DataType::Int32, INT32_MAX, int32_t{1}), INT32_MIN);
  EXPECT_EQ(reduceTwo(ReduceKind::Product, DataType::Int64, INT64_MAX, int64_t{2}), -2);
  EXPECT_EQ(reduceTwo(ReduceKind::Min, DataType::UInt64, UINT64_MAX, uint64_t{1}), 1u);
  EXPECT_EQ(reduceTwo(ReduceKind::Sum, DataType::Bool, uint8_t{2}, uint8_t{4}), 1);
  EXPECT_EQ(reduceTwo(ReduceKind::BitAnd, DataType::Bool, uint8_t{2}, uint8_t{4}), 1);
  EXPECT_EQ(reduceTwo(ReduceKind::BitXor, DataType::Bool, uint8_t{2}, uint8_t{4}), 0);
}

TEST(ReduceFunctions, ExistExactlyForSupportedPairs) {
  for (int k = 0; k < kReduceKindCount; ++k) {
    for (int t = 0; t < kDataTypeCount; ++t) {
      const auto kind = static_cast<ReduceKind>(k);
      const auto type = static_cast<DataType>(t);
      if (isSupported(kind, type)) {
        EXPECT_NE(reduceFn(kind, type), nullptr) << nameOf(kind) << " " << nameOf(type);
        if (kind == ReduceKind::PremulSum) {
          EXPECT_NE(scaleFn(type), nullptr);
        }
        continue;
      }
      try {
        reduceFn(kind, type);
        ADD_FAILURE() << nameOf(kind) << " of " << nameOf(type) << " should be refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
        EXPECT_EQ(error.what(), whyUnsupported(kind, type));
      }
    }
  }
}

}  // namespace
}  // namespace ctran
