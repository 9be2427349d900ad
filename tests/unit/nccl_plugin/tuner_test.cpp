// What the tuner plug-in answers NCCL, in each version of it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/unit/nccl_plugin/host.h"
#include "torchcomms/csrc/nccl_plugin/plugin.h"
#include "torchcomms/csrc/nccl_plugin/table.h"

namespace torchcomms::nccl_plugin::testing {
namespace {

constexpr int kAllReduce = 4, kAllGather = 2;
constexpr int kTree = 0, kRing = 1, kNvls = 4;
constexpr int kLl = 0, kSimple = 2;

/// A file for as long as it is there, which TORCHCOMMS_NCCL_TUNING names.
class TuningFile {
 public:
  explicit TuningFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("tuning-" + std::to_string(::getpid()) + ".csv")) {
    std::ofstream(path_) << text;
    ::setenv("TORCHCOMMS_NCCL_TUNING", path_.c_str(), 1);
  }
  ~TuningFile() {
    ::unsetenv("TORCHCOMMS_NCCL_TUNING");
    std::filesystem::remove(path_);
  }

 private:
  std::filesystem::path path_;
};

class EachTuner : public ::testing::TestWithParam<int> {
 protected:
  int version() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Versions, EachTuner, ::testing::Range(2, 6),
                         [](const auto& info) { return "V" + std::to_string(info.param); });

TEST_P(EachTuner, NcclTakesWhatTheTableSays) {
  const TuningFile file(
      "# collective, least, most, algorithm, protocol, channels, hosts, ranks\n"
      "all_reduce, 0, 65536, tree, ll, 2, 1, 8\n"
      "allreduce,65537,1048576,ring,simple,-1,-1,8,-1,-1\r\n");
  TunedComm comm(version(), 8, 1);
  EXPECT_EQ(comm.result, 0);
  comm.ask(kAllReduce, 4096);
  EXPECT_EQ(comm.cheapest(), TunedComm::at(kTree, kLl));
  EXPECT_EQ(comm.channels, 2);
  TunedComm large(version(), 8, 1);
  large.ask(kAllReduce, 1 << 20);
  EXPECT_EQ(large.cheapest(), TunedComm::at(kRing, kSimple));
  EXPECT_EQ(large.channels, 0) << "NCCL's own";
}

TEST_P(EachTuner, WhatTheTableDoesNotHaveIsLeftToNccl) {
  const TuningFile file("all_reduce, 0, 65536, tree, ll, 2, 1, 8\n");
  const auto isLeft = [](const TunedComm& comm) {
    for (const float cost : comm.costs) {
      if (cost != 100) return false;
    }
    return comm.channels == 0 && comm.result == 0;
  };
  TunedComm larger(version(), 8, 1), other(version(), 8, 1), fewer(version(), 4, 1),
      spread(version(), 8, 2);
  larger.ask(kAllReduce, 65537);
  other.ask(kAllGather, 4096);
  fewer.ask(kAllReduce, 4096);
  spread.ask(kAllReduce, 4096);
  for (const TunedComm* comm : {&larger, &other, &fewer, &spread}) EXPECT_TRUE(isLeft(*comm));
}

TEST_P(EachTuner, WhatNcclCannotDoIsNotTaken) {
  if (version() == 2) GTEST_SKIP() << "this version does not say what NCCL can do";
  const TuningFile file("all_reduce, , , nvls, simple, 4\nall_gather, , , nvls, , 4\n");
  TunedComm comm(version(), 8, 1);
  comm.costs[TunedComm::at(kNvls, kSimple)] = -1;
  comm.ask(kAllReduce, 4096);
  EXPECT_EQ(comm.costs[TunedComm::at(kNvls, kSimple)], -1);
  EXPECT_EQ(comm.channels, 0);
  // Of an algorithm without a protocol, NCCL takes the one that it thinks best.
  comm.costs[TunedComm::at(kNvls, kLl)] = 50;
  comm.ask(kAllGather, 4096);
  EXPECT_EQ(comm.cheapest(), TunedComm::at(kNvls, kLl));
  EXPECT_EQ(comm.channels, 4);
}

TEST_P(EachTuner, AFileThatMakesNoSenseIsNotUsed) {
  const TuningFile file("all_reduce, 0, 65536, tree, ll\nall_reduce, 0, lots, tree, ll\n");
  TunedComm comm(version(), 8, 1);
  comm.ask(kAllReduce, 4096);
  EXPECT_EQ(comm.result, 0);
  EXPECT_EQ(comm.costs[TunedComm::at(kTree, kLl)], 100);
}

TEST_P(EachTuner, WhatIsForcedIsTakenWhereNcclCan) {
  void* const library = ::dlopen(NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  const auto force =
      reinterpret_cast<void (*)(int, int, int)>(::dlsym(library, "torchcomms_nccl_force"));
  const auto forced =
      reinterpret_cast<void (*)(uint64_t*, uint64_t*)>(::dlsym(library, "torchcomms_nccl_forced"));
  ASSERT_TRUE(force && forced);
  force(kNvls, kSimple, 16);
  TunedComm comm(version(), 8, 1);
  comm.ask(kAllReduce, 4096);
  EXPECT_EQ(comm.cheapest(), TunedComm::at(kNvls, kSimple));
  EXPECT_EQ(comm.channels, 16);
  if (version() > 2) {
    comm.costs[TunedComm::at(kNvls, kSimple)] = -1;
    comm.ask(kAllReduce, 4096);
    uint64_t taken = 0, refused = 0;
    forced(&taken, &refused);
    EXPECT_EQ(taken, 1U);
    EXPECT_EQ(refused, 1U);
  }
  force(-1, -1, -1);
  TunedComm free(version(), 8, 1);
  free.ask(kAllReduce, 4096);
  EXPECT_EQ(free.costs[0], 100);
}

TEST(NcclTuningTable, SaysWhereItIsWrong) {
  const auto why = [](const std::string& text) -> std::string {
    try {
      Table::parse(text, "file");
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(why(""), "");
  EXPECT_EQ(why("\n\n# nothing\n"), "");
  EXPECT_EQ(why("\nall_reduse,1,2,ring,ll").substr(0, 38),
            "file:2: 'all_reduse' is not a collecti");
  EXPECT_EQ(why("all_reduce,1,2"),
            "file:1: there are 3 fields instead of 5 to 10: collective, "
            "least bytes, most bytes, algorithm, protocol, channels, hosts, "
            "ranks, calls in a group, registered");
  EXPECT_EQ(why("all_reduce,2,1,ring,ll"), "file:1: '1' is not at least 2");
  EXPECT_EQ(why("all_reduce,0,1,circle,ll").substr(0, 34), "file:1: 'circle' is not an algorit");
  EXPECT_EQ(why("all_reduce,0,1,ring,ll,65"), "file:1: '65' is not a number from 0 to 64");
  EXPECT_EQ(why("all_reduce,0,1,ring,\x1b[1m").substr(0, 14), "file:1: '?[1m'");
  EXPECT_EQ(why(std::string(2 << 20, '\n')), "file is larger than 1 MB");
  EXPECT_NE(why([] {
              std::string many;
              for (int i = 0; i < 10'001; ++i) many += "all_reduce,0,1,ring,ll\n";
              return many;
            }()),
            "");
  EXPECT_THROW(Table::read("/nowhere"), std::runtime_error);
}

TEST(NcclPlugin, IsOfferedToNcclWhereItIsAskedFor) {
  ::unsetenv("NCCL_PROFILER_PLUGIN");
  ::unsetenv("NCCL_TUNER_PLUGIN");
  offer();
  EXPECT_EQ(std::getenv("NCCL_PROFILER_PLUGIN"), nullptr);
  EXPECT_EQ(std::getenv("NCCL_TUNER_PLUGIN"), nullptr);
  ::setenv("TORCHCOMMS_NCCL_PROFILER", "1", 1);
  const TuningFile file("");
  ::setenv("NCCL_TUNER_PLUGIN", "theirs", 1);
  offer();
  EXPECT_TRUE(std::filesystem::equivalent(std::getenv("NCCL_PROFILER_PLUGIN"), NCCL_PLUGIN));
  EXPECT_STREQ(std::getenv("NCCL_TUNER_PLUGIN"), "theirs");
  for (const char* name :
       {"TORCHCOMMS_NCCL_PROFILER", "NCCL_PROFILER_PLUGIN", "NCCL_TUNER_PLUGIN"}) {
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace torchcomms::nccl_plugin::testing
