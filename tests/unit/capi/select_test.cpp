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
         std::to_string(bytes) + R"(, "communicator": ")" + communicator.name() + R"(", "rank": )" +
         std::to_string(communicator.rank()) + "}";
}

TEST_F(SelectCalls, ExplainWithoutACommunicator) {
  const Json answer =
      call(R"({"do": "explain", "collective": "all_reduce", "bytes": 8, "ranks": 4})").at("ok");
  EXPECT_EQ(answer.at("algorithm").asString(), "step");
  EXPECT_EQ(answer.at("alternatives").items().size(), 4u);
  EXPECT_FALSE(call(R"({"do": "host"})").at("ok").at("cores").items().empty());
}

TEST_F(SelectCalls, NonsenseIsAnsweredWithAnError) {
  for (const char* bad : {"", R"({"do": "dance"})", R"({"do": "explain"})",
                          R"({"do": "explain", "collective": "sum", "bytes": 1, "ranks": 2})",
                          R"({"do": "explain", "collective": "send", "bytes": 1, "ranks": 2})",
                          R"({"do": "explain", "collective": "reduce", "bytes": -1, "ranks": 2})",
                          R"({"do": "explain", "collective": "reduce", "bytes": 1, "ranks": 0})",
                          R"({"do": "tune", "communicator": "nobody", "rank": 0, "seconds": 1})"}) {
    const Json answer = call(bad);
    EXPECT_EQ(answer.at("kind").asInt(), static_cast<int>(ErrorKind::InvalidArgument)) << bad;
  }
}

std::atomic<int> gReports{0};

TEST_F(SelectCalls, WhatIsTunedIsUsedHereAndLater) {
  runRanks(3, [](Communicator& communicator) {
    const std::string tune = R"({"do": "tune", "seconds": 2, "communicator": ")" +
                             communicator.name() + R"(", "rank": )" +
                             std::to_string(communicator.rank()) + "}";
    const Json answer = call(tune, [](double, const char*) { ++gReports; });
    ASSERT_NE(answer.find("ok"), nullptr) << answer.print();
    const Json explained = call(explainOn(communicator, "all_reduce", 4096)).at("ok");
    EXPECT_NE(explained.at("why").asString().find("tuned"), std::string::npos);
    EXPECT_GT(explained.at("alternatives").items()[0].at("measured_us").asDouble(), 0);
  });
  EXPECT_GT(gReports, 3);
  EXPECT_EQ(TuningTable::load(3).ranks, 3);
  EXPECT_EQ(TuningTable::load(2).ranks, 0);
  runRanks(3, [](Communicator& communicator) {
    const Json explained = call(explainOn(communicator, "all_reduce", 4096)).at("ok");
    EXPECT_NE(explained.at("why").asString().find("tuned"), std::string::npos);
  });
}

TEST_F(SelectCalls, ADamagedTableIsIgnored) {
  for (const char* text : {"", "{", R"({"format": 2})", R"({"format": 1, "machine": 7})"}) {
    FILE* file = std::fopen(TuningTable::pathFor(2).c_str(), "w");
    std::fputs(text, file);
    std::fclose(file);
    EXPECT_TRUE(TuningTable::load(2).entries.empty());
  }
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
