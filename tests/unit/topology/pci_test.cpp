#include "ctran/topology/pci.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ctran::testing {
namespace {

namespace fs = std::filesystem;

/// A /sys of two NUMA nodes. In node 0 a GPU and a card share a switch, and a second card is behind
/// another one of the same root complex; a third card is in node 1, a fourth is on no bus.
class PciTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "pci-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    const std::string first = "sys/devices/pci0000:00/";
    device(first + "0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", 0, "gpu0");
    device(first + "0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", 0, "mlx5_0");
    device(first + "0000:00:02.0/0000:08:00.0", 0, "mlx5_1");
    device("sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", 1, "mlx5_2");
    device("sys/devices/virtual/rxe0", -1, "rxe0");
    for (int node = 0; node < 2; ++node) {
      write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist",
            node == 0 ? "0-1" : "2-3");
    }
    for (int cpu = 0; cpu < 4; ++cpu) {
      write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/core_id",
            std::to_string(cpu));
    }
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void device(const std::string& path, int node, const std::string& name) {
    if (node >= 0) write(path + "/numa_node", std::to_string(node));
    const fs::path link = root_ / "sys/class/infiniband" / name / "device";
    fs::create_directories(root_ / path);
    fs::create_directories(link.parent_path());
    fs::create_symlink(root_ / path, link);
  }
  PciPlace place(const std::string& name) const {
    return PciPlace::of((root_ / "sys/class/infiniband" / name / "device").string());
  }

  fs::path root_;
};

TEST_F(PciTest, PathsAndNodesAreRead) {
  const PciPlace card = place("mlx5_0");
  EXPECT_EQ(card.node, 0);
  EXPECT_EQ(card.path, (std::vector<std::string>{"pci0000:00", "0000:00:01.0", "0000:01:00.0",
                                                 "0000:02:01.0", "0000:04:00.0"}));
  EXPECT_TRUE(place("rxe0").path.empty());
  EXPECT_EQ(place("rxe0").node, -1);
  EXPECT_TRUE(place("mlx5_9").path.empty());
}

TEST_F(PciTest, ASwitchIsNearerThanARootComplexAndThatThanAnotherNode) {
  const PciPlace gpu = place("gpu0");
  EXPECT_EQ(gpu.distance(place("mlx5_0")), 4);
  EXPECT_EQ(gpu.distance(gpu), 0);
  EXPECT_LT(gpu.distance(place("mlx5_0")), gpu.distance(place("mlx5_1")));
  EXPECT_LT(gpu.distance(place("mlx5_1")), gpu.distance(place("rxe0")));
  EXPECT_LT(gpu.distance(place("rxe0")), gpu.distance(place("mlx5_2")));
  EXPECT_EQ(place("mlx5_2").distance(gpu), gpu.distance(place("mlx5_2")));
}

TEST_F(PciTest, TheNearestAreAllThatAreAsNear) {
  const PciPlace gpu = place("gpu0"), beside = place("mlx5_0"), sameRoot = place("mlx5_1"),
                 otherNode = place("mlx5_2"), nowhere;
  using Numbers = std::vector<size_t>;
  EXPECT_EQ(nearestOf({sameRoot, beside, otherNode, beside}, gpu), (Numbers{1, 3}));
  EXPECT_EQ(nearestOf({otherNode, sameRoot}, gpu), Numbers{1});
  EXPECT_EQ(nearestOf({sameRoot, beside, otherNode}, nowhere), (Numbers{0, 1, 2}));
  EXPECT_EQ(nearestOf({}, gpu), Numbers{});
}

TEST_F(PciTest, CoresOfOneNodeAreNearerToItsDevices) {
  const Host host = Host::read(root_.string());
  EXPECT_EQ(commonNode(host, {2, 3}), 1);
  EXPECT_EQ(commonNode(host, {1, 2}), -1);
  EXPECT_EQ(commonNode(host, {}), -1);
  EXPECT_EQ(commonNode(host, {77}), -1);
  EXPECT_LT(place("mlx5_2").distance(1), place("mlx5_0").distance(1));
  EXPECT_EQ(place("mlx5_2").distance(-1), place("mlx5_0").distance(-1));
}

TEST(Pci, AThreadKnowsWhereItMayRun) {
  const std::vector<int> cpus = allowedCpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_EQ(cpus.size(), static_cast<size_t>([] {
              cpu_set_t set;
              ::sched_getaffinity(0, sizeof set, &set);
              return CPU_COUNT(&set);
            }()));
}

}  // namespace
}  // namespace ctran::testing
