#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "ctran/base/config.h"

#define DEBUG 1  // as programs are compiled with -DDEBUG
#include <comms/utils/logger/Logger.h>

namespace {

template <class Log>
std::string logged(Log log) {
  testing::internal::CaptureStderr();
  log();
  return testing::internal::GetCapturedStderr();
}

TEST(Logger, WritesWhatTheLevelOfProgramsAdmits) {
  const int rank = 3;
  ctran::setLive("TORCHCOMM_LOG", "error,program=info");
  const std::string line = logged([&] { LOG(INFO) << "rank " << rank << " starts"; });
  EXPECT_NE(line.find(" info program: LoggerTest.cpp:"), std::string::npos) << line;
  EXPECT_NE(line.find(": rank 3 starts\n"), std::string::npos) << line;
  EXPECT_EQ(logged([&] { LOG(DEBUG) << "details"; }), "");
  ctran::setLive("TORCHCOMM_LOG", "info,program=error");
  EXPECT_EQ(logged([&] { LOG(WARNING) << "x"; }), "");
  EXPECT_NE(logged([&] { LOG(ERROR) << "y"; }).find("error program"), std::string::npos);
}

TEST(Logger, EvaluatesNothingThatIsNotWritten) {
  ctran::setLive("TORCHCOMM_LOG", "warn");
  int evaluated = 0;
  const auto text = [&] {
    ++evaluated;
    return "x";
  };
  EXPECT_EQ(logged([&] { LOG(TRACE) << text(); }), "");
  EXPECT_EQ(evaluated, 0);
  logged([&] { LOG(WARN) << text(); });
  EXPECT_EQ(evaluated, 1);
}

TEST(Logger, IsOneStatement) {
  ctran::setLive("TORCHCOMM_LOG", "warn");
  const auto branch = [](bool first) {
    if (first)
      LOG(ERROR) << "then";
    else
      LOG(ERROR) << "otherwise";
  };
  EXPECT_NE(logged([&] { branch(true); }).find("then"), std::string::npos);
  EXPECT_NE(logged([&] { branch(false); }).find("otherwise"), std::string::npos);
}

TEST(LoggerDeathTest, FatalEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(LOG(FATAL) << "no way on", testing::KilledBySignal(SIGABRT), "no way on");
}

}  // namespace
