// Which algorithm serves a call on GPUs: by size where nobody names one, by name, or none.

#include <gtest/gtest.h>

#include <string>

#include "ctran/base/error.h"
#include "ctran/select/selector.h"

namespace ctran {
namespace {

using Kind = CollectiveKind;

/// As on GPUs that see each other over NVLink, and as where they do not.
GpuLimits limits(int size, bool lines) {
  return {size_t{6 << 20} / size, lines ? size_t{9 << 20} / size : 0, false};
}

Collective call(Kind kind, size_t bytes, DataType type) {
  Collective c;
  c.kind = kind;
  c.type = type;
  c.count = bytes / sizeOf(type);
  return c;
}

std::string chosen(Selector& selector, Kind kind, size_t bytes, DataType type = DataType::Float32) {
  return std::string(selector.choose(call(kind, bytes, type)).name);
}

std::string refusal(Selector& selector, const Collective& c) {
  try {
    selector.choose(c);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
    return error.what();
  }
  return "";
}

TEST(GpuSelector, GoesBySize) {
  Selector two(2, limits(2, true)), four(4, limits(4, true)), eight(8, limits(8, true));
  for (Selector* one : {&two, &four, &eight}) {
    EXPECT_EQ(chosen(*one, Kind::AllReduce, 0), "one_shot");
    EXPECT_EQ(chosen(*one, Kind::AllReduce, (1 << 20) - 64), "two_shot");
    EXPECT_EQ(chosen(*one, Kind::AllReduce, 1 << 20), "lines");
    EXPECT_EQ(chosen(*one, Kind::AllReduce, 64 << 20), "pipeline");
    EXPECT_EQ(chosen(*one, Kind::AllGather, 512 << 10), "packets");
    EXPECT_EQ(chosen(*one, Kind::AllGather, (512 << 10) + 4), "direct");
    EXPECT_EQ(chosen(*one, Kind::Barrier, 0), "packets");
    EXPECT_EQ(chosen(*one, Kind::AllToAllV, 0), "direct");
    EXPECT_EQ(chosen(*one, Kind::AllToAllVDynamic, 0), "rows");
  }
  // 12 bytes in a packet: as much as fits into packets of so many bytes.
  EXPECT_EQ(chosen(two, Kind::AllReduce, (512 << 10) / 12 * 12), "one_shot");
  EXPECT_EQ(chosen(two, Kind::AllReduce, 512 << 10), "two_shot");
  EXPECT_EQ(chosen(four, Kind::AllReduce, (160 << 10) / 12 * 12), "one_shot");
  EXPECT_EQ(chosen(four, Kind::AllReduce, 160 << 10), "two_shot");
  EXPECT_EQ(chosen(eight, Kind::AllReduce, (32 << 10) / 12 * 12), "one_shot");
  EXPECT_EQ(chosen(eight, Kind::AllReduce, 32 << 10), "two_shot");
  EXPECT_EQ(chosen(two, Kind::Broadcast, 1 << 20), "direct");
  EXPECT_EQ(chosen(four, Kind::Broadcast, 1 << 20), "scatter_all_gather");
  EXPECT_EQ(chosen(four, Kind::Broadcast, (1 << 20) - 4), "direct");
}

TEST(GpuSelector, KnowsWhatTheLinksAndTheTypeAllow) {
  Selector with(4, limits(4, true)), without(4, limits(4, false));
  EXPECT_EQ(chosen(without, Kind::AllReduce, 1 << 20), "two_shot");
  EXPECT_EQ(chosen(without, Kind::AllReduce, 3 << 20), "pipeline");
  // A double has a packet of its own, and of 16 bytes none: complex numbers are two of them.
  EXPECT_EQ(chosen(with, Kind::AllReduce, 100 << 10, DataType::Float64), "one_shot");
  EXPECT_EQ(chosen(with, Kind::AllReduce, 150 << 10, DataType::Float64), "two_shot");
  Collective products = call(Kind::AllReduce, 1024, DataType::Complex128);
  EXPECT_EQ(with.choose(products).name, "one_shot");
  products.op.kind = ReduceKind::Product;
  EXPECT_EQ(with.choose(products).name, "pipeline");
  products.count = (2 << 20) / 16;
  EXPECT_EQ(with.choose(products).name, "lines");
}

TEST(GpuSelector, TakesWhatIsNamedOrRefuses) {
  Selector selector(4, limits(4, true));
  Collective c = call(Kind::AllReduce, 4096, DataType::Float32);
  c.hints = callHints({{"ctran::algorithm", "pipeline"}}, false);
  EXPECT_EQ(selector.choose(c).name, "pipeline");
  c.hints = callHints({{"ctran::algorithm", "all_reduce=one_shot"}}, false);
  EXPECT_EQ(selector.choose(c).name, "one_shot");
  c.count = 64 << 20;
  EXPECT_NE(refusal(selector, c).find("'one_shot' of all_reduce"), std::string::npos);
  EXPECT_NE(refusal(selector, c).find("slots hold"), std::string::npos);
  // Of several the first that can.
  c.hints = callHints({{"ctran::algorithm", "all_reduce=pipeline,all_reduce=one_shot"}}, false);
  EXPECT_EQ(selector.choose(c).name, "pipeline");
  for (const char* name : {"ring", "all_reduce=ring"}) {
    c.hints = callHints({{"ctran::algorithm", name}}, false);
    const std::string text = refusal(selector, c);
    EXPECT_NE(text.find("'ring'"), std::string::npos) << text;
    EXPECT_NE(text.find("one_shot, two_shot"), std::string::npos) << text;
  }
  // Of other collectives.
  c.hints = callHints({{"ctran::algorithm", "copy_engine"}}, false);
  EXPECT_EQ(selector.choose(c).name, "pipeline");
}

TEST(GpuSelector, ExplainsWhyNotTheOthers) {
  GpuLimits throughHost = limits(4, false);
  throughHost.throughHost = true;
  const Selector selector(4, throughHost);
  const Explanation told =
      selector.explain(Kind::AllReduce, 4 << 20, DataType::Float32, ReduceKind::Sum, nullptr);
  EXPECT_EQ(told.algorithm, "pipeline");
  ASSERT_EQ(told.alternatives.size(), 4u);
  for (const auto& one : told.alternatives) {
    EXPECT_EQ(one.whyNot.empty(), one.algorithm == "pipeline") << one.algorithm;
    EXPECT_FALSE(one.sizes.empty());
    EXPECT_FALSE(one.predicted);
  }
  const Explanation gathers =
      selector.explain(Kind::AllGather, 4096, DataType::UInt8, ReduceKind::Sum, nullptr);
  EXPECT_EQ(gathers.algorithm, "packets");
  EXPECT_EQ(gathers.alternatives.size(), 3u);
}

TEST(GpuSelector, RefusesNamesOfOtherPlaces) {
  const Preferences names("all_reduce=ring,all_reduce=two_shot", "a test");
  EXPECT_NO_THROW(names.checkPlaces({AlgorithmPlace::Gpus}, "GPUs"));
  EXPECT_NO_THROW(names.checkPlaces({AlgorithmPlace::Network}, "hosts"));
  EXPECT_THROW(names.checkPlaces({AlgorithmPlace::SharedMemory}, "a host"), Error);
  EXPECT_THROW(Preferences("ring", "a test").checkPlaces({AlgorithmPlace::Gpus}, "GPUs"), Error);
}

}  // namespace
}  // namespace ctran
