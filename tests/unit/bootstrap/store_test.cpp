#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "ctran/bootstrap/local_store.h"
#include "ctran/os/private_file.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

struct MemoryKind {
  std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
};

struct DirectoryKind {
  TemporaryDirectory directory;
  std::shared_ptr<Store> store = std::make_shared<DirectoryStore>(directory.path());
};

template <class Kind>
class Stores : public ::testing::Test {
 protected:
  Kind kind_;
  Store& store_ = *kind_.store;
};

using Kinds = ::testing::Types<MemoryKind, DirectoryKind>;
TYPED_TEST_SUITE(Stores, Kinds);

TYPED_TEST(Stores, GiveWhatWasSet) {
  const std::string binary("a\0b\n\xff", 5);
  this->store_.set("some/key", binary);
  EXPECT_EQ(this->store_.get("some/key", std::chrono::milliseconds(0)), binary);
  this->store_.set("some/key", "");
  EXPECT_EQ(this->store_.get("some/key", std::chrono::milliseconds(0)), "");
}

TEST(DirectoryStore, KeepsWhatIsSetFromOtherUsers) {
  const DirectoryKind kind;
  const mode_t before = ::umask(0);
  kind.store->set("key", "secret");
  ::umask(before);
  for (const auto& entry : std::filesystem::directory_iterator(kind.directory.path())) {
    EXPECT_EQ(entry.status().permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write)
        << entry.path();
  }
}

TEST(PrivateFile, IsOfThisUserAlone) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/file";
  EXPECT_EQ(readPrivateFile(path), std::nullopt);
  writePrivateFile(path, "secret");
  EXPECT_EQ(readPrivateFile(path), "secret");
  EXPECT_EQ(errorOf([&] { writePrivateFile(path, "other"); }).kind(), ErrorKind::System);
  std::filesystem::create_symlink(path, directory.path() + "/link");
  EXPECT_EQ(errorOf([&] { readPrivateFile(directory.path() + "/link"); }).kind(),
            ErrorKind::System);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(errorOf([&] { readPrivateFile(path); }).kind(), ErrorKind::System);
}

TYPED_TEST(Stores, WaitForAKeyAndGiveUp) {
  const Error error = errorOf([&] { this->store_.get("never", std::chrono::milliseconds(20)); });
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_NE(std::string(error.what()).find("never"), std::string::npos);
  std::thread setter([&] { this->store_.set("late", "value"); });
  EXPECT_EQ(this->store_.get("late", kGuard), "value");
  setter.join();
}

TYPED_TEST(Stores, ForgetWhatIsRemoved) {
  this->store_.set("key", "value");
  this->store_.remove("key");
  this->store_.remove("key");  // no error
  EXPECT_EQ(errorOf([&] { this->store_.get("key", std::chrono::milliseconds(0)); }).kind(),
            ErrorKind::Timeout);
}

TYPED_TEST(Stores, NeverShowHalfAValue) {
  const std::string a(100'000, 'a'), b(100'000, 'b');
  this->store_.set("key", a);
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (const std::string* value : {&a, &b}) {
    writers.emplace_back([&, value] {
      while (!stop) this->store_.set("key", *value);
    });
  }
  for (int i = 0; i < 200; ++i) {
    const std::string got = this->store_.get("key", kGuard);
    EXPECT_TRUE(got == a || got == b);
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

TEST(DirectoryStore, LeavesNoDraftsBehind) {
  const TemporaryDirectory directory;
  DirectoryStore store(directory.path());
  store.set("a/b", "1");
  store.remove("a/b");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_EQ(errorOf([&] { DirectoryStore("/does/not/exist").set("key", "value"); }).kind(),
            ErrorKind::System);
}

}  // namespace
}  // namespace ctran::testing
