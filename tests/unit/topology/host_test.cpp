#include "ctran/topology/host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ctran::testing {
namespace {

namespace fs = std::filesystem;

/// A /sys and /proc of two sockets, each a node with two cores of two threads that share a cache.
class HostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "host-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    write("proc/cpuinfo", "processor : 0\nmodel name\t: A Processor\n");
    for (int node = 0; node < 2; ++node) {
      const std::string path = "sys/devices/system/node/node" + std::to_string(node);
      write(path + "/cpulist", node == 0 ? "0-1,4-5" : "2-3,6-7");
      write(path + "/distance", node == 0 ? "10 21" : "21 10");
    }
    for (int cpu = 0; cpu < 8; ++cpu) {
      const int core = cpu % 4, socket = core / 2;
      const std::string path = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
      write(path + "/topology/physical_package_id", std::to_string(socket));
      write(path + "/topology/core_id", std::to_string(core % 2));
      cache(path, 0, 1, "Data", "32K", pair(core));
      cache(path, 1, 1, "Instruction", "32K", pair(core));
      cache(path, 2, 3, "Unified", "16M", socket == 0 ? "0-1,4-5" : "2-3,6-7");
    }
    write("sys/class/net/eth0/device/numa_node", "1");
    write("sys/class/net/eth0/speed", "100000");
    write("sys/class/net/eth0/operstate", "up");
    write("sys/class/net/lo/operstate", "unknown");
    write("sys/class/net/veth1/operstate", "down");
  }
  void TearDown() override { fs::remove_all(root_); }

  static std::string pair(int core) {
    return std::to_string(core) + "," + std::to_string(core + 4);
  }
  void cache(const std::string& cpu, int index, int level, const std::string& type,
             const std::string& size, const std::string& shared) {
    const std::string path = cpu + "/cache/index" + std::to_string(index);
    write(path + "/level", std::to_string(level));
    write(path + "/type", type);
    write(path + "/size", size);
    write(path + "/shared_cpu_list", shared);
  }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }

  fs::path root_;
};

TEST_F(HostTest, CoresCachesNodesAndCardsAreRead) {
  const Host host = Host::read(root_);
  EXPECT_EQ(host.cpuModel, "A Processor");
  ASSERT_EQ(host.cores.size(), 4u);
  EXPECT_EQ(host.cores[0].cpus, (std::vector<int>{0, 4}));
  EXPECT_EQ(host.cores[3].cpus, (std::vector<int>{3, 7}));
  EXPECT_EQ(host.cores[3].node, 1);
  EXPECT_EQ(host.nodes, 2);
  EXPECT_EQ(host.caches.size(), 4u + 2u);  // not those of instructions
  ASSERT_EQ(host.nics.size(), 2u);         // not lo
  EXPECT_EQ(host.nics[0].name, "eth0");
  EXPECT_EQ(host.nics[0].megabits, 100'000);
  EXPECT_TRUE(host.nics[0].up);
  EXPECT_FALSE(host.nics[0].virtualDevice);
  EXPECT_TRUE(host.nics[1].virtualDevice);
}

TEST_F(HostTest, DistancesGrowFromThreadsToSockets) {
  const Host host = Host::read(root_);
  EXPECT_EQ(host.distance(0, 4), 0);
  EXPECT_EQ(host.distance(0, 1), 1);
  EXPECT_EQ(host.distance(0, 2), 4);
  EXPECT_EQ(host.distance(host.nics[0], 2), 10);
  EXPECT_EQ(host.distance(host.nics[0], 0), 21);
}

TEST_F(HostTest, KeyIsOfTheKindOfMachine) {
  const std::string key = Host::read(root_).key();
  EXPECT_EQ(key.size(), 16u);
  write("sys/class/net/eth1/operstate", "up");
  EXPECT_EQ(Host::read(root_).key(), key);
  write("proc/cpuinfo", "model name : Another Processor\n");
  EXPECT_NE(Host::read(root_).key(), key);
}

TEST(Host, WithNothingToReadIsEmpty) {
  const Host host = Host::read("/nonexistent");
  EXPECT_TRUE(host.cores.empty());
  EXPECT_EQ(host.nodes, 1);
  EXPECT_EQ(host.nodeOf(0), -1);
}

TEST(Host, ThisOneHasACore) { EXPECT_FALSE(thisHost().cores.empty()); }

}  // namespace
}  // namespace ctran::testing
