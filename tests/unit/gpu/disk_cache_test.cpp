#include "ctran/gpu/disk_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace ctran::gpu {
namespace {

class DiskCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/ctran-cache-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  /// What the cache gives for `key`, and whether it had to be produced.
  std::string get(const std::string& key, const std::string& value) {
    produced_ = false;
    return DiskCache(root_ + "/a/b").get(key, [&] {
      produced_ = true;
      return value;
    });
  }

  std::string fileOf(const std::string& key) const { return root_ + "/a/b/" + key; }

  std::string root_;
  bool produced_ = false;
};

TEST_F(DiskCacheTest, ProducesOnceAndThenReads) {
  const std::string value("bytes\0and more", 14);
  EXPECT_EQ(get("key", value), value);
  EXPECT_TRUE(produced_);
  EXPECT_EQ(get("key", "something else"), value);
  EXPECT_FALSE(produced_);
  EXPECT_EQ(get("other", "something else"), "something else");
  EXPECT_TRUE(produced_);
}

TEST_F(DiskCacheTest, MakesADamagedFileAgain) {
  get("key", std::string(1000, 'x'));
  std::filesystem::resize_file(fileOf("key"), 700);
  EXPECT_EQ(get("key", "after a truncation"), "after a truncation");
  EXPECT_TRUE(produced_);
  {
    std::fstream file(fileOf("key"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('!');
  }
  EXPECT_EQ(get("key", "after a flipped byte"), "after a flipped byte");
  EXPECT_TRUE(produced_);
  std::ofstream(fileOf("key"), std::ios::trunc).close();
  EXPECT_EQ(get("key", "after emptying"), "after emptying");
}

TEST_F(DiskCacheTest, AFailureOfTheProducerPassesThroughAndStoresNothing) {
  const DiskCache cache(root_ + "/a/b");
  EXPECT_THROW(cache.get("key", []() -> std::string { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(get("key", "fine"), "fine");
  EXPECT_TRUE(produced_);
}

TEST_F(DiskCacheTest, WorksWithoutADirectory) {
  const DiskCache cache("/dev/null/cannot/be");
  EXPECT_EQ(cache.get("key", [] { return std::string("value"); }), "value");
}

TEST_F(DiskCacheTest, ManyProcessesProduceOnce) {
  const std::string log = root_ + "/log";
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const std::string value = DiskCache(root_ + "/a/b").get("key", [&] {
        std::ofstream(log, std::ios::app) << "produced\n" << std::flush;
        return std::string(100000, 'v');
      });
      _exit(value == std::string(100000, 'v') ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(std::filesystem::file_size(log), std::string("produced\n").size());
}

TEST(DigestTest, IsFnv1aOf128Bits) {
  EXPECT_EQ(Digest().hex(), "6c62272e07bb014262b821756295c58d");
  EXPECT_EQ(Digest().add("a").hex(), "d228cb696f1a8caf78912b704e4a8964");
  EXPECT_EQ(Digest().add("foo").add("bar").hex(), Digest().add("foobar").hex());
}

}  // namespace
}  // namespace ctran::gpu
