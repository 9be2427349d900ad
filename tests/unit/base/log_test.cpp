#include "ctran/base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <string>

namespace ctran {
namespace {

std::string logged(LogLevel level, const std::string& text, int value) {
  testing::internal::CaptureStderr();
  log(level, "%s %d", text.c_str(), value);
  return testing::internal::GetCapturedStderr();
}

TEST(Log, WarnsByDefaultInOneLine) {
  if (std::getenv("CTRAN_LOG") != nullptr) GTEST_SKIP() << "CTRAN_LOG is set";
  EXPECT_TRUE(logs(LogLevel::Error));
  EXPECT_TRUE(logs(LogLevel::Warn));
  EXPECT_FALSE(logs(LogLevel::Info));
  const std::string line = logged(LogLevel::Warn, "slots are scarce:", 3);
  std::string form = line.substr(0, line.find("ctran["));
  for (char& c : form) c = std::isdigit(static_cast<unsigned char>(c)) ? '9' : c;
  EXPECT_EQ(form, "99:99:99.999999 ");
  const std::string process = "ctran[" + std::to_string(getpid()) + "]";
  EXPECT_EQ(line.substr(form.size()), process + " warn: slots are scarce: 3\n");
  EXPECT_EQ(logged(LogLevel::Info, "unimportant", 0), "");
}

TEST(Log, NamesTheRankOnceItIsKnown) {
  setLogRank(7);
  EXPECT_NE(logged(LogLevel::Error, "x", 0).find("] rank 7 error: x 0\n"), std::string::npos);
  setLogRank(-1);
  EXPECT_EQ(logged(LogLevel::Error, "x", 0).find("rank"), std::string::npos);
}

TEST(Log, CutsLongMessagesAndStillEndsTheLine) {
  const std::string line = logged(LogLevel::Error, std::string(5000, 'x'), 0);
  EXPECT_GT(line.size(), 1000u);
  EXPECT_LT(line.size(), 1300u);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(line[line.size() - 2], 'x');
}

TEST(Log, LeavesErrnoAlone) {
  errno = ENOENT;
  logged(LogLevel::Error, "x", 0);
  EXPECT_EQ(errno, ENOENT);
}

// The level is read once per process, so a new process for each setting.
void exitAfterLogging(const char* setting) {
  setenv("CTRAN_LOG", setting, 1);
  log(LogLevel::Debug, "details");
  std::exit(0);
}

TEST(LogDeathTest, LevelComesFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exitAfterLogging("debug"), testing::ExitedWithCode(0), "debug: details");
}

TEST(LogDeathTest, AnUnknownLevelIsReportedAndMeansWarn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exitAfterLogging("loud"), testing::ExitedWithCode(0),
              "warn: CTRAN_LOG='loud' is not one of error.warn.info.debug");
}

}  // namespace
}  // namespace ctran
