#include "ctran/collective/plan/user_function.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace ctran {
namespace {

using Kind = CollectiveKind;
using Places = UserFunction::Places;

constexpr int kFunctionRanks = 3, kFunctionRank = 1;
constexpr size_t kFunctionBlock = 5;

/// A call of one rank on bytes, in place or not, with listed blocks or not; its buffers stay apart
/// from what is around them.
struct FunctionCase {
  Kind kind;
  bool inPlace, listed;
  std::vector<std::byte> memory = std::vector<std::byte>(200, std::byte{0xee});
  std::vector<std::byte> wantedInput;  // as the function is to see it
  Collective call = {};

  FunctionCase(Kind kind, bool inPlace, bool listed)
      : kind(kind), inPlace(inPlace), listed(listed) {
    const FunctionBytes bytes = functionBytes(of(kind), kFunctionRanks);
    std::byte* const output = memory.data() + 10;
    std::byte* input = memory.data() + 100;
    if (inPlace) input = kind == Kind::AllGather ? output + kFunctionRank * kFunctionBlock : output;
    std::byte* const begin = input;
    for (size_t i = 0; i < bytes.input; ++i) input[i] = std::byte(i + 1);
    wantedInput.assign(input, input + bytes.input);
    call = of(kind);
    call.input = input;
    call.output =
        inPlace && kind == Kind::ReduceScatter ? begin + kFunctionRank * kFunctionBlock : output;
    if (kind == Kind::Broadcast) wantedInput.assign(call.output, call.output + kFunctionBlock);
    if (!listed) return;
    if (bytes.input > kFunctionBlock) {
      for (int r = 0; r < kFunctionRanks; ++r)
        call.inputs.push_back({input + r * kFunctionBlock, kFunctionBlock});
      call.input = nullptr;
    }
    if (bytes.output > kFunctionBlock) {
      for (int r = 0; r < kFunctionRanks; ++r)
        call.outputs.push_back({output + r * kFunctionBlock, kFunctionBlock});
      call.output = nullptr;
    }
  }

  static Collective of(Kind kind) {
    Collective call;
    call.kind = kind;
    call.count = kFunctionBlock;
    return call;
  }

  std::vector<std::byte> result() const {
    const size_t bytes = functionBytes(call, kFunctionRanks).output;
    const std::byte* const from = call.outputs.empty() ? call.output : call.outputs[0].data;
    return {from, from + bytes};
  }
};

bool isInPlace(const PlacedCall& call) {
  const Collective& c = call.collective;
  const size_t own = kFunctionRank * kFunctionBlock;
  if (c.kind == Kind::AllGather) return c.input == c.output + own;
  if (c.kind == Kind::ReduceScatter) return c.output == c.input + own;
  return c.input == c.output;
}

TEST(UserFunction, GetsBuffersAsItTakesThem) {
  for (const Kind kind :
       {Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll, Kind::Broadcast}) {
    for (const Places places : {Places::Any, Places::InPlace, Places::OutOfPlace}) {
      for (const auto& [inPlace, listed] :
           {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
        SCOPED_TRACE(std::string(nameOf(kind)) + " " + std::to_string(static_cast<int>(places)) +
                     (inPlace ? " in place" : "") + (listed ? " listed" : ""));
        FunctionCase one(kind, inPlace, listed);
        const std::vector<std::byte> before = one.memory;
        std::vector<std::byte> staging;
        const PlacedCall call =
            placed(one.call, places, kFunctionRank, kFunctionRanks, [&](size_t bytes) {
              EXPECT_TRUE(staging.empty());
              staging.resize(bytes);
              return staging.data();
            });
        for (const auto& copy : call.before) std::memmove(copy.to, copy.from, copy.bytes);
        const Collective& c = call.collective;
        ASSERT_TRUE(c.inputs.empty() && c.outputs.empty());
        EXPECT_TRUE(places != Places::InPlace || isInPlace(call));
        EXPECT_TRUE(places != Places::OutOfPlace || !isInPlace(call));
        const std::vector<std::byte> seen(c.input, c.input + call.bytes.input);
        EXPECT_EQ(seen, one.wantedInput);
        std::vector<std::byte> results(call.bytes.output);
        for (size_t i = 0; i < results.size(); ++i) results[i] = std::byte(i + 101);
        std::memcpy(c.output, results.data(), results.size());
        for (const auto& copy : call.after) std::memmove(copy.to, copy.from, copy.bytes);
        EXPECT_EQ(one.result(), results);
        // Nothing else of the caller's has changed, the input among it.
        const std::vector<std::byte> after = one.memory;
        const std::byte* const output =
            one.call.outputs.empty() ? one.call.output : one.call.outputs[0].data;
        for (size_t i = 0; i < after.size(); ++i) {
          const std::byte* const at = one.memory.data() + i;
          if (at >= output && at < output + results.size()) continue;
          ASSERT_EQ(after[i], before[i]) << i;
        }
      }
    }
  }
}

TEST(UserFunction, ServesCollectivesOfEqualBlocks) {
  EXPECT_EQ(whyNoFunction(Kind::AllToAll), "");
  EXPECT_EQ(whyNoFunction(Kind::Gather), "functions serve no gather");
}

}  // namespace
}  // namespace ctran
