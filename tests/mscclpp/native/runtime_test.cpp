#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "mscclpp/concurrency_device.hpp"
#include "mscclpp/env.hpp"
#include "mscclpp/errors.hpp"
#include "mscclpp/fifo.hpp"
#include "tests/mscclpp/native/ranks.h"

namespace mscclpp::testing {
namespace {

TEST(HostKernel, RunsEachThreadOfEachBlockOnce) {
  const dim3 grid(3, 2);
  const dim3 block(5, 2, 3);
  std::vector<int> runs(6 * 30);
  host::launch(grid, block, 0, [&] {
    ASSERT_EQ(gridDim.y, 2U);
    ASSERT_EQ(blockDim.z, 3U);
    const unsigned inBlock = threadIdx.x + 5 * (threadIdx.y + 2 * threadIdx.z);
    ++runs[(blockIdx.x + 3 * blockIdx.y) * 30 + inBlock];
  });
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

/// Each thread writes for its neighbour, again and again.
void passOn(std::vector<unsigned>& sums) {
  __shared__ unsigned values[256];
  unsigned sum = 0;
  for (unsigned round = 0; round < 5; ++round) {
    values[threadIdx.x] = threadIdx.x * 10 + round;
    __syncthreads();
    sum += values[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
  }
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

TEST(HostKernel, ThreadsOfABlockWaitForEachOther) {
  std::vector<unsigned> sums(4 * 256);
  host::launch(4, 256, 0, [&] { passOn(sums); });
  for (unsigned i = 0; i < sums.size(); ++i) {
    ASSERT_EQ(sums[i], (i % 256 + 1) % 256 * 50 + 10) << i;
  }
}

TEST(HostKernel, ThreadsThatHaveEndedAreWaitedForNoMore) {
  int seen = 0;
  host::launch(1, 64, 0, [&] {
    if (threadIdx.x % 2 == 1) return;
    __syncthreads();
    ++seen;
  });
  EXPECT_EQ(seen, 32);
}

TEST(HostKernel, WarpsShuffle) {
  std::vector<float> got(96);
  host::launch(1, 96, 0, [&] {
    auto sum = static_cast<float>(threadIdx.x);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0U, sum, step);
    got[threadIdx.x] = sum;
  });
  for (int i = 0; i < 96; ++i) ASSERT_EQ(got[i], 496.0F + 1024.0F * static_cast<float>(i / 32));
}

TEST(HostKernel, AnErrorOfOneThreadEndsTheLaunch) {
  DeviceSemaphore never;
  const std::string error = errorOf([&] {
    host::launch(3, 8, 0, [&] {
      if (blockIdx.x == 2 && threadIdx.x == 5) throw std::runtime_error("thread 5 of block 2");
      never.acquire();
    });
  });
  EXPECT_EQ(error, "thread 5 of block 2");
}

TEST(HostKernel, BlocksHaveDynamicSharedMemoryOfTheirOwn) {
  std::vector<unsigned> sums(4);
  host::launch(4, 16, 16 * sizeof(unsigned), [&] {
    auto* const values = static_cast<unsigned*>(host::dynamicShared());
    values[threadIdx.x] = blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) sums[blockIdx.x] = std::accumulate(values, values + 16, 0U);
  });
  EXPECT_EQ(sums, (std::vector<unsigned>{0, 16, 32, 48}));
}

/// Writes that many KiB of stack. AddressSanitizer would have the locals in memory of its own.
[[gnu::noinline, gnu::no_sanitize_address]] unsigned deep(unsigned kilobytes,
                                                          const volatile char* above = nullptr) {
  volatile char locals[1024];
  for (volatile char& local : locals) local = above == nullptr ? '\0' : *above;
  return kilobytes == 1 ? 1 : deep(kilobytes - 1, locals) + 1;
}

TEST(HostKernel, ThreadsHaveOneMebibyteOfStack) {
  std::vector<unsigned> got(16);
  host::launch(1, 16, 0, [&] {
    __syncthreads();
    got[threadIdx.x] = deep(600);
    __syncthreads();
  });
  EXPECT_EQ(got, std::vector<unsigned>(16, 600));
}

TEST(HostKernelDeathTest, AStackThatOverflowsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto overflow = [] {
    host::launch(1, 16, 0, [] {
      __syncthreads();
      if (threadIdx.x == 0) std::_Exit(deep(1040) == 0 ? 1 : 0);  // as if all were well
      __syncthreads();
    });
  };
  EXPECT_DEATH(overflow(), "");
}

TEST(HostKernel, EndsWithinALimit) {
  WaitLimit limit;
  limit.peer = 3;
  limit.timeoutNanos = 20'000'000;
  DeviceSemaphore never;
  never.limit_ = &limit;
  const auto wait = [&] { host::launch(1, 1, 0, [&] { never.acquire(); }); };
  EXPECT_NE(errorOf(wait).find("for rank 3"), std::string::npos);
  EXPECT_NE(errorOf(wait).find("after an earlier failure"), std::string::npos);
}

/// In a process of its own, which reads the environment anew.
TEST(HostKernelDeathTest, WaitsWithoutALimitEndAfterTheUsualTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ::setenv("MSCCLPP_TIMEOUT", "1", 1);
  const auto said = [](const auto& wait) {
    try {
      wait();
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  };
  const auto waits = [&] {
    said([] { LL16Packet{}.read(7); });
    said([] { LL8Packet{}.read(7); });
    said([] { DeviceSemaphore{}.acquire(); });
    std::_Exit(0);
  };
  const std::string late = "waited 2 s for others[^\n]*\n";
  EXPECT_EXIT(waits(), ::testing::ExitedWithCode(0), late + ".*" + late + ".*" + late);
  ::unsetenv("MSCCLPP_TIMEOUT");
}

TEST(EnvDeathTest, VariablesAreHandedOnToTheEngine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::vector<std::pair<const char*, const char*>> given = {
      {"MSCCLPP_DEBUG", "Info"},
      {"MSCCLPP_HCA_DEVICES", "mlx5_0"},
      {"MSCCLPP_SOCKET_FAMILY", "af_inet"},
      {"MSCCLPP_SOCKET_IFNAME", "^=eth0,lo"},
      {"MSCCLPP_IBV_MODE", "host"},
      {"CTRAN_IB_GID_INDEX", "5"},
      {"MSCCLPP_IB_GID_INDEX", "3"}};
  for (const auto& [name, value] : given) ::setenv(name, value, 1);
  const auto tell = [] {
    const auto told = env();
    for (const char* name : {"TORCHCOMM_LOG", "CTRAN_IB_HCA", "CTRAN_TCP_FAMILY",
                             "CTRAN_TCP_INTERFACES", "CTRAN_IB_GID_INDEX"}) {
      std::fprintf(stderr, "%s ", std::getenv(name));
    }
    std::fprintf(stderr, "%s", told->ibGidIndex.c_str());
    std::_Exit(0);
  };
  EXPECT_EXIT(tell(), ::testing::ExitedWithCode(0),
              "MSCCLPP_IBV_MODE has no effect here\ninfo =mlx5_0 ipv4 .eth0,lo 5 3");
  for (const auto& [name, value] : given) ::unsetenv(name);
}

TEST(Fifo, APushThatGivesUpLeavesNoPlaceThatStaysEmpty) {
  Fifo fifo(2, DeviceType::CPU);
  FifoDeviceHandle handle = fifo.deviceHandle();
  handle.push({1});
  handle.push({2});
  EXPECT_NE(errorOf([&] { handle.push({3}, 10); }), "");
  ProxyTrigger trigger;
  for (const uint64_t expected : {1, 2}) {
    ASSERT_TRUE(fifo.poll(trigger));
    EXPECT_EQ(trigger.fst, expected);
    fifo.pop();
  }
  const uint64_t pushed = handle.push({4});
  ASSERT_TRUE(fifo.poll(trigger));
  EXPECT_EQ(trigger.fst, 4U);
  EXPECT_FALSE(handle.poll(pushed));
  fifo.pop();
  EXPECT_TRUE(handle.poll(pushed));
}

TEST(Fifo, ThreadsThatPushAtTheSameTimeLoseNothing) {
  Fifo fifo(3, DeviceType::CPU);
  FifoDeviceHandle handle = fifo.deviceHandle();
  constexpr uint64_t kThreads = 8, kEach = 50;
  std::vector<int> seen(kThreads * kEach);
  std::thread proxy([&] {
    ProxyTrigger trigger;
    for (uint64_t count = 0; count < kThreads * kEach;) {
      if (!fifo.poll(trigger)) {
        std::this_thread::yield();
        continue;
      }
      ++seen[trigger.fst];
      fifo.pop();
      ++count;
    }
  });
  host::launch(1, kThreads, 0, [&] {
    for (uint64_t i = 0; i < kEach; ++i) handle.sync(handle.push({threadIdx.x * kEach + i}));
  });
  proxy.join();
  EXPECT_EQ(seen, std::vector<int>(kThreads * kEach, 1));
}

TEST(DeviceSyncer, OrdersWhatBlocksWrite) {
  DeviceSyncer syncer;
  std::vector<unsigned> values(4);
  std::vector<int> wrong(4);
  host::launch(4, 3, 0, [&] {
    for (unsigned round = 0; round < 50; ++round) {
      if (threadIdx.x == 0) values[blockIdx.x] = round * 4 + blockIdx.x;
      syncer.sync(4);
      for (unsigned b = 0; b < 4; ++b) {
        if (threadIdx.x == 0) wrong[blockIdx.x] += values[b] != round * 4 + b ? 1 : 0;
      }
      syncer.sync(4);
    }
  });
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(DeviceSemaphore, HandsOver) {
  DeviceSemaphore full;
  DeviceSemaphore empty;
  empty.set(2);
  std::vector<int> ring(2);
  std::vector<int> got;
  host::launch(2, 1, 0, [&] {
    for (int i = 0; i < 200; ++i) {
      if (blockIdx.x == 0) {
        empty.acquire();
        ring[i % 2] = i;
        full.release();
      } else {
        full.acquire();
        got.push_back(ring[i % 2]);
        empty.release();
      }
    }
  });
  ASSERT_EQ(got.size(), 200U);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(got[i], i);
}

}  // namespace
}  // namespace mscclpp::testing
