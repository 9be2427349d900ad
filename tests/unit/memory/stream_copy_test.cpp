#include "ctran/memory/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace ctran::testing {
namespace {

TEST(StreamCopy, CopiesExactlyThatWhateverTheAlignment) {
  constexpr size_t kMargin = 128;
  for (const size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 191, 192, 500, 4096, 10007}) {
    for (const size_t to : {0, 1, 15, 16, 63}) {
      for (const size_t from : {0, 3, 64}) {
        std::vector<std::byte> source(bytes + 2 * kMargin), target(bytes + 2 * kMargin);
        for (size_t i = 0; i < source.size(); ++i) source[i] = std::byte(i * 7 + 1);
        streamCopy(target.data() + kMargin / 2 + to, source.data() + from, bytes);
        streamFence();
        for (size_t i = 0; i < target.size(); ++i) {
          const size_t at = i - kMargin / 2 - to;  // wraps around before the begin
          const std::byte expected = at < bytes ? source[from + at] : std::byte{0};
          ASSERT_EQ(target[i], expected) << bytes << " bytes, to " << to << ", byte " << i;
        }
      }
    }
  }
}

TEST(StreamCopy, KnowsALastLevelCache) { EXPECT_GE(lastLevelCacheBytes(), size_t{64} << 10); }

}  // namespace
}  // namespace ctran::testing
