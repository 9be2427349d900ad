#include "ctran/capi/select.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "ctran/base/error.h"
#include "ctran/base/json.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/select/tuning_table.h"
#include "ctran/topology/host.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

Json call(const std::string& request, void (*progress)(double, const char*) = nullptr) {
  char* answer = ctran_select_call(request.c_str(), progress);
  const Json json = Json::parse(answer);
  ctran_select_free(answer);
  return json;
}

/// A directory for tuning tables that nobody else has, for as long as the test runs.
class SelectCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tuning-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
    ::setenv("CTRAN_TUNING_DIR", path_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("CTRAN_TUNING_DIR");
    std::filesystem::remove_all(path_);
  }
  std::filesystem::path path_;
};

std::string explainOn(const Communicator& communicator, const std::string& collective,
                      size_t bytes) {
  return R"({"do": "explain", "collective": ")" + collective + R"(", "bytes": )" +
         std::to_string(bytes) + R"(, "communicator": ")" + communicator.name() +
         R"(", "token": )" + std::to_string(communicator.token()) + "}";
}

TEST_F(SelectCalls, ExplainWithoutACommunicator) {
  const Json answer =
      call(R"({"do": "explain", "collective": "all_reduce", "bytes": 8, "ranks": 4})").at("ok");
  EXPECT_EQ(answer.at("algorithm").asString(), "step");
  EXPECT_EQ(answer.at("alternatives").items().size(), 4u);
  EXPECT_FALSE(call(R"({"do": "host"})").at("ok").at("cores").items().empty());
}

TEST_F(SelectCalls, NonsenseIsAnsweredWithAnError) {
  for (const char* bad :
       {"", R"({"do": "dance"})", R"({"do": "explain"})",
        R"({"do": "explain", "collective": "sum", "bytes": 1, "ranks": 2})",
        R"({"do": "explain", "collective": "send", "bytes": 1, "ranks": 2})",
        R"({"do": "explain", "collective": "reduce", "bytes": -1, "ranks": 2})",
        R"({"do": "explain", "collective": "reduce", "bytes": 1, "ranks": 0})",
        R"({"do": "explain", "collective": "reduce", "bytes": 1, "ranks": 2,
                              "hosts": 0})",
        R"({"do": "explain", "collective": "reduce", "bytes": 1, "ranks": 2,
                              "hosts": 1000000000})",
        R"({"do": "explain", "collective": "reduce", "bytes": 1, "ranks": 2,
                              "type": "float"})",
        R"({"do": "tune", "communicator": "nobody", "token": 0, "seconds": 1})"}) {
    const Json answer = call(bad);
    EXPECT_EQ(answer.at("kind").asInt(), static_cast<int>(ErrorKind::InvalidArgument)) << bad;
  }
}

std::string tuneOn(const Communicator& communicator, double seconds) {
  return R"({"do": "tune", "seconds": )" + std::to_string(seconds) + R"(, "communicator": ")" +
         communicator.name() + R"(", "token": )" + std::to_string(communicator.token()) + "}";
}

std::atomic<int> gReports{0};

/// On a busy machine no more may get measured than the first point.
TEST_F(SelectCalls, WhatIsTunedIsUsedHereAndLater) {
  runRanks(3, [](Communicator& communicator) {
    const Json answer = call(tuneOn(communicator, 1), [](double, const char*) { ++gReports; });
    ASSERT_NE(answer.find("ok"), nullptr) << answer.print();
    const Json explained = call(explainOn(communicator, "broadcast", 256)).at("ok");
    EXPECT_NE(explained.at("why").asString().find("tuned"), std::string::npos);
    EXPECT_GT(explained.at("alternatives").items()[0].at("measured_us").asDouble(), 0);
  });
  EXPECT_GE(gReports, 3 * 2);
  EXPECT_EQ(TuningTable::load(3).ranks, 3);
  EXPECT_EQ(TuningTable::load(2).ranks, 0);
  runRanks(3, [](Communicator& communicator) {
    const Json explained = call(explainOn(communicator, "broadcast", 256)).at("ok");
    EXPECT_NE(explained.at("why").asString().find("tuned"), std::string::npos);
  });
}

TEST_F(SelectCalls, WhatIsTunedBetweenHostsIsUsedHereAndLater) {
  const auto isTuned = [](const Communicator& communicator) {
    const Json explained = call(explainOn(communicator, "broadcast", 256)).at("ok");
    const std::string& why = explained.at("why").asString();
    return why.find("tuned") != std::string::npos;
  };
  runRanks(
      4,
      [&](Communicator& communicator) {
        EXPECT_FALSE(isTuned(communicator));
        const Json answer = call(tuneOn(communicator, 1));
        ASSERT_NE(answer.find("ok"), nullptr) << answer.print();
        EXPECT_NE(answer.at("ok").at("path").asString().find("-2x2.json"), std::string::npos);
        EXPECT_TRUE(isTuned(communicator));
      },
      2);
  EXPECT_EQ(TuningTable::load(4, {}, "2x2").ranks, 4);
  EXPECT_TRUE(TuningTable::load(4).entries.empty());
  runRanks(
      4,
      [&](Communicator& communicator) {
        EXPECT_TRUE(isTuned(communicator));
        const int first = communicator.rank() % 2;
        // What is asked for by name and rank has to be the only one of them in this process.
        const auto pair =
            communicator.split(std::vector{first, first + 2}, "pair" + std::to_string(first));
        EXPECT_FALSE(isTuned(*pair));  // which is two hosts of one rank
      },
      2);
  runRanks(4, [&](Communicator& communicator) { EXPECT_FALSE(isTuned(communicator)); });
}

#if !defined(__SANITIZE_THREAD__)

TEST_F(SelectCalls, BetweenHostsAllGoByTheTableOfRankZero) {
  const TemporaryDirectory directory;
  for (const char* name : {"ring", "halving_doubling"}) {
    TuningTable table;
    table.machine = thisHost().key();
    table.ranks = 3;
    table.shape = "3x1";
    table.entries.push_back({CollectiveKind::AllReduce, 4096, {{name, 1}}});
    ::setenv("CTRAN_TUNING_DIR", (path_ / name).c_str(), 1);
    table.save();
  }
  for (const std::string first : {"ring", "halving_doubling", "none"}) {
    ForkedRanks ranks(3, [&](int rank) {
      const std::string own = rank == 0 ? first : rank == 1 ? "halving_doubling" : "ring";
      ::setenv("CTRAN_TUNING_DIR", (path_ / own).c_str(), 1);
      auto options = optionsFor(rank, 3, std::make_shared<DirectoryStore>(directory.path()), first);
      options.hints["ctran::host"] = "host" + std::to_string(rank);
      const auto communicator = Communicator::create(options);
      const Json explained = call(explainOn(*communicator, "all_reduce", 4096)).at("ok");
      EXPECT_EQ(explained.at("algorithm").asString(), first == "none" ? "direct" : first);
      std::vector<float> data(1024, 1.0F + static_cast<float>(rank));
      Collective sum;
      sum.kind = CollectiveKind::AllReduce;
      sum.type = DataType::Float32;
      sum.count = data.size();
      sum.output = reinterpret_cast<std::byte*>(data.data());
      sum.input = sum.output;
      communicator->run(sum);
      EXPECT_EQ(data, std::vector<float>(1024, 6));
      communicator->finalize();
    });
    ranks.expectSuccess();
  }
}

#endif

TEST_F(SelectCalls, ExplainBetweenHostsWithoutACommunicator) {
  const auto taken = [](const std::string& rest) {
    return call(R"({"do": "explain", "collective": "all_reduce", )" + rest + "}")
        .at("ok")
        .at("algorithm")
        .asString();
  };
  EXPECT_EQ(taken(R"("bytes": 8, "ranks": 1, "hosts": 4)"), "direct");
  EXPECT_EQ(taken(R"("bytes": 8, "ranks": 4, "hosts": 2)"), "group");
  EXPECT_EQ(taken(R"("bytes": 100000, "ranks": 1, "hosts": 100)"), "halving_doubling");
  EXPECT_EQ(taken(R"("bytes": 100000, "ranks": 1, "hosts": 100, "type": "bfloat16")"), "two_phase");
}

TEST_F(SelectCalls, ADamagedTableIsIgnored) {
  for (const char* text : {"", "{", R"({"format": 2})", R"({"format": 1, "machine": 7})"}) {
    FILE* file = std::fopen(TuningTable::pathFor(2).c_str(), "w");
    std::fputs(text, file);
    std::fclose(file);
    EXPECT_TRUE(TuningTable::load(2).entries.empty());
  }
}

TEST_F(SelectCalls, AnAlgorithmThatOneHostLacksIsAPlanOfTheLibrary) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(3, [&](int rank) {
    CommunicatorOptions options = optionsFor(rank, 3, store);
    options.hints["ctran::algorithm"] = "ring,broadcast=scatter_all_gather,reduce=two_phase";
    const auto explained = [](const Communicator& communicator, const char* kind,
                              const char* type) {
      std::string request = explainOn(communicator, kind, 4096);
      request.insert(request.size() - 1, R"(, "type": ")" + std::string(type) + "\"");
      const Json answer = call(request).at("ok");
      return answer.at("algorithm").asString() + ": " + answer.at("why").asString();
    };
    const auto named = Communicator::create(options);
    EXPECT_EQ(explained(*named, "all_reduce", "float32").find("ring: the hint"), 0u);
    EXPECT_EQ(explained(*named, "reduce_scatter", "float32").find("ring: the hint"), 0u);
    EXPECT_EQ(explained(*named, "broadcast", "float32").find("scatter_all_gather: the hint"), 0u);
    EXPECT_EQ(explained(*named, "reduce", "float32").find("two_phase: the hint"), 0u);
    // Nobody has a ring of these, and short floats are not summed up in parts.
    EXPECT_NE(explained(*named, "gather", "float32").find("cost model"), std::string::npos);
    EXPECT_NE(explained(*named, "all_reduce", "bfloat16").find("cost model"), std::string::npos);
    options.hints["ctran::deterministic"] = "rank_order";
    const auto ordered = Communicator::create(options);
    EXPECT_NE(explained(*ordered, "all_reduce", "float32").find("cost model"), std::string::npos);
    EXPECT_EQ(explained(*ordered, "all_gather", "float32").find("ring: the hint"), 0u);
  });
}

TEST_F(SelectCalls, RanksThatPreferDifferentAlgorithmsAreTold) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(2, [&](int rank) {
    CommunicatorOptions options = optionsFor(rank, 2, store);
    options.hints["ctran::algorithm"] = rank == 0 ? "all_reduce=step" : "all_reduce=direct";
    const Error error = errorOf([&] { Communicator::create(options); });
    EXPECT_EQ(error.kind(), ErrorKind::Mismatch);
    EXPECT_NE(std::string(error.what()).find("prefer different algorithms"), std::string::npos);
  });
}

}  // namespace
}  // namespace ctran::testing
