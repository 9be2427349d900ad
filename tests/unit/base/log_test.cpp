#include "ctran/base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/base/json.h"

namespace ctran {
namespace {

std::string logged(LogLevel level, const std::string& text, int value) {
  ::testing::internal::CaptureStderr();
  log(LogComponent::Select, level, "%s %d", text.c_str(), value);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, WarnsByDefaultInOneLine) {
  if (std::getenv("CTRAN_LOG") != nullptr) GTEST_SKIP() << "CTRAN_LOG is set";
  setLogRank(-1);
  EXPECT_TRUE(logs(LogComponent::Select, LogLevel::Error));
  EXPECT_TRUE(logs(LogComponent::Select, LogLevel::Warn));
  EXPECT_FALSE(logs(LogComponent::Select, LogLevel::Info));
  const std::string line = logged(LogLevel::Warn, "slots are scarce:", 3);
  std::string form = line.substr(0, line.find("ctran["));
  for (char& c : form) c = std::isdigit(static_cast<unsigned char>(c)) ? '9' : c;
  EXPECT_EQ(form, "99:99:99.999999 ");
  const std::string process = "ctran[" + std::to_string(getpid()) + "]";
  EXPECT_EQ(line.substr(form.size()), process + " warn select: slots are scarce: 3\n");
  EXPECT_EQ(logged(LogLevel::Info, "unimportant", 0), "");
}

TEST(Log, NamesTheRankOnceItIsKnown) {
  setLogRank(7);
  EXPECT_NE(logged(LogLevel::Error, "x", 0).find("] rank 7 error select: x 0\n"),
            std::string::npos);
  setLogRank(-1);
  EXPECT_EQ(logged(LogLevel::Error, "x", 0).find("rank"), std::string::npos);
}

TEST(Log, LeavesOutWhatComesTooOftenAndCountsIt) {
  const auto flood = [] {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 2000; ++i) log(LogComponent::Select, LogLevel::Error, "a flood");
    return ::testing::internal::GetCapturedStderr();
  };
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  const std::string first = flood();  // within two seconds, in each of which 20 are written
  EXPECT_GE(lines(first), 20);
  EXPECT_LE(lines(first), 40);
  std::string later;
  while (later.find("like it, left out before)") == std::string::npos) later = flood();
  EXPECT_GE(lines(logged(LogLevel::Error, "another one", 0)), 1);
}

class Taker final : public LogSink {
 public:
  bool take(const LogRecord& record) override {
    taken.push_back(record);
    return takes;
  }
  std::vector<LogRecord> taken;
  bool takes = true;
};

TEST(Log, GoesToASinkAsLongAsItTakes) {
  static Taker sink;
  setLogSink(&sink);
  setLogRank(5);
  EXPECT_EQ(logged(LogLevel::Warn, "to the sink", 1), "");
  sink.takes = false;
  EXPECT_NE(logged(LogLevel::Warn, "to stderr", 2).find("to stderr 2\n"), std::string::npos);
  setLogSink(nullptr);
  setLogRank(-1);
  logged(LogLevel::Warn, "after it", 3);
  ASSERT_EQ(sink.taken.size(), 2u);
  EXPECT_EQ(sink.taken[0].text, "to the sink 1");
  EXPECT_EQ(sink.taken[0].component, LogComponent::Select);
  EXPECT_EQ(sink.taken[0].level, LogLevel::Warn);
  EXPECT_EQ(sink.taken[0].rank, 5);
}

TEST(Log, LevelsChangeWhileTheProgramRuns) {
  setLive("TORCHCOMM_LOG", "error, select=trace");
  EXPECT_FALSE(logs(LogComponent::Transport, LogLevel::Warn));
  EXPECT_NE(logged(LogLevel::Trace, "details", 0).find("trace select: details 0"),
            std::string::npos);
  EXPECT_THROW(setLive("TORCHCOMM_LOG", "select=loud"), Error);
  EXPECT_TRUE(logs(LogComponent::Select, LogLevel::Trace)) << "what is refused changes nothing";
  setLive("TORCHCOMM_LOG", "warn");
  EXPECT_FALSE(logs(LogComponent::Select, LogLevel::Info));
}

TEST(Log, CutsLongMessagesAndStillEndsTheLine) {
  const std::string line = logged(LogLevel::Error, std::string(5000, 'x'), 0);
  EXPECT_GT(line.size(), 2900u);
  EXPECT_LT(line.size(), 4096u) << "one write to a pipe";
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(line[line.size() - 2], 'x');
}

TEST(Log, LeavesErrnoAlone) {
  errno = ENOENT;
  logged(LogLevel::Error, "x", 0);
  EXPECT_EQ(errno, ENOENT);
}

// What the environment says is read once per process, so a new process for each setting.
void exitAfterLogging(const char* name, const char* setting) {
  setenv(name, setting, 1);
  log(LogComponent::Select, LogLevel::Debug, "details");
  log(LogComponent::Memory, LogLevel::Debug, "pages");
  std::exit(0);
}

TEST(LogDeathTest, LevelsComeFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exitAfterLogging("TORCHCOMM_LOG", "debug"), ::testing::ExitedWithCode(0),
              "debug select: details(.|\n)*debug memory: pages");
  EXPECT_EXIT(exitAfterLogging("CTRAN_LOG", "debug"), ::testing::ExitedWithCode(0),
              "debug select: details");
}

TEST(LogDeathTest, AComponentHasALevelOfItsOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exitAfterLogging("TORCHCOMM_LOG", "select=error,debug"), ::testing::ExitedWithCode(0),
              "^[^\n]*debug memory: pages\n$");
}

TEST(LogDeathTest, AnUnknownLevelIsReportedAndMeansWarn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exitAfterLogging("CTRAN_LOG", "loud"), ::testing::ExitedWithCode(0),
              "warn config: CTRAN_LOG='loud' is not a list of levels: error, warn");
  EXPECT_EXIT(exitAfterLogging("TORCHCOMM_LOG", "net=info"), ::testing::ExitedWithCode(0),
              "TORCHCOMM_LOG='net=info' is not a list of levels: the components are config.engine");
}

TEST(LogDeathTest, AFileThatCannotBeOpenedIsReportedAndMeansStderr) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("TORCHCOMM_LOG", "debug", 1);
  EXPECT_EXIT(exitAfterLogging("TORCHCOMM_LOG_TO", "/no/such/folder/log"),
              ::testing::ExitedWithCode(0),
              "TORCHCOMM_LOG_TO: /no/such/folder/log: No such file(.|\n)*debug select: details");
  unsetenv("TORCHCOMM_LOG");
}

// In a process of its own: what it has written to the file of rank 3, and to stderr.
[[noreturn]] void exitAfterLoggingToFile() {
  char made[] = "/tmp/log_test_XXXXXX";
  if (mkdtemp(made) == nullptr) std::exit(2);
  const std::string folder = made;
  setenv("TORCHCOMM_LOG", "info", 1);
  setenv("TORCHCOMM_LOG_FORMAT", "json", 1);
  setenv("TORCHCOMM_LOG_TO", (folder + "/log_%r").c_str(), 1);
  log(LogComponent::Gpu, LogLevel::Info, "too early");
  setLogRank(3);
  log(LogComponent::Gpu, LogLevel::Info, "a \"quoted\"\ntext");
  std::ifstream file(folder + "/log_3");
  std::string line;
  std::getline(file, line);
  const Json json = Json::parse(line);
  const bool fine = json.at("text").asString() == "a \"quoted\"\ntext" &&
                    json.at("rank").asInt() == 3 && json.at("level").asString() == "info" &&
                    json.at("component").asString() == "gpu" && json.at("pid").asInt() == getpid();
  const bool isAll = file.peek() == EOF;
  std::filesystem::remove_all(folder);
  std::exit(fine && isAll ? 0 : 1);
}

TEST(LogDeathTest, AFilePerRankHoldsLinesOfJson) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exitAfterLoggingToFile(), ::testing::ExitedWithCode(0), "too early");
}

}  // namespace
}  // namespace ctran
