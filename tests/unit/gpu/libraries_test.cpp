#include "ctran/gpu/libraries.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

namespace ctran::gpu {
namespace {

constexpr const char* kName = "libctran-test-of-homes.so";

class LibrariesTest : public ::testing::Test {
 protected:
  /// In `folder` below the home of NCCL: a library, under a name that nobody else has.
  void install(const char* folder) const {
    Dl_info some;
    ASSERT_NE(::dladdr(reinterpret_cast<void*>(&::dladdr), &some), 0);
    std::filesystem::create_directories(home / folder);
    std::filesystem::create_symlink(some.dli_fname, home / folder / kName);
  }

  void SetUp() override {
    std::string name = ::testing::TempDir() + "ctran-homes-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    home = name;
    ::setenv("NCCL_HOME", home.c_str(), 1);
  }

  void TearDown() override {
    ::unsetenv("NCCL_HOME");
    std::filesystem::remove_all(home);
  }

  std::filesystem::path home;
  std::string reasons;
};

TEST_F(LibrariesTest, AreFoundBelowTheHome) {
  for (const char* folder : {"lib", "lib64"}) {
    install(folder);
    EXPECT_NE(openLibrary({"libctran-nowhere.so", kName}, Home::Nccl, reasons), nullptr) << reasons;
    std::filesystem::remove_all(home / folder);
  }
}

TEST_F(LibrariesTest, AreNotLookedForInOtherHomes) {
  install("lib");
  EXPECT_EQ(openLibrary({kName}, Home::Rocm, reasons), nullptr);
}

TEST_F(LibrariesTest, EachPlaceHasAReason) {
  EXPECT_EQ(openLibrary({kName}, Home::Nccl, reasons), nullptr);
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), '\n'), 3) << reasons;
  EXPECT_NE(reasons.find(home / "lib64" / kName), std::string::npos) << reasons;
}

}  // namespace
}  // namespace ctran::gpu
