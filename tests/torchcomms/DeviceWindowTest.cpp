// What kernels may rely on of a device window: threads of the host are the blocks, and the ranks.

#include <gtest/gtest.h>

// CUDA's names, before what needs them.
#include <mscclpp/gpu.hpp>

#include <algorithm>
#include <atomic>
#include <comms/torchcomms/device/TorchCommDeviceWindow.hpp>
#include <numeric>
#include <thread>
#include <vector>

namespace torchcomms::device {
namespace {

constexpr Word kSignals = 3, kCounters = 2, kBarriers = 2;
constexpr size_t kBytes = 4096, kGuard = 64;
constexpr CoopScope kScopes[] = {CoopScope::THREAD, CoopScope::WARP, CoopScope::BLOCK};

/// Ranks whose windows are in this process.
class World {
 public:
  explicit World(int ranks, Word timeoutNanos = 60'000'000'000) : ranks_(ranks) {
    for (Rank& rank : ranks_) {
      rank.memory.assign(kBytes + 2 * kGuard, -1);
      rank.words.assign((kSignals + kBarriers) * ranks_.size(), 0);
    }
    for (int r = 0; r < ranks; ++r) {
      Rank& rank = of(r);
      for (Rank& other : ranks_) {
        rank.peers.push_back({other.memory.data() + kGuard, kBytes, other.words.data()});
      }
      rank.window.DeviceWindowState::rank = r;
      rank.window.ranks = ranks;
      rank.window.signals = kSignals;
      rank.window.counters = kCounters;
      rank.window.barriers = kBarriers;
      rank.window.timeoutNanos = timeoutNanos;
      rank.window.peers = rank.peers.data();
      rank.window.counts = rank.counts;
      rank.window.rounds = rank.rounds;
      rank.window.failed = &rank.failed;
      rank.window.report = &rank.report;
    }
  }

  /// `kernel(window)` on every rank at the same time, with so many blocks and threads.
  template <class Kernel>
  void run(unsigned blocks, unsigned threads, const Kernel& kernel) {
    std::vector<std::thread> all;
    for (Rank& rank : ranks_) {
      all.emplace_back(
          [&] { mscclpp::host::launch(blocks, threads, 0, [&] { kernel(windowOf(rank)); }); });
    }
    for (std::thread& one : all) one.join();
  }
  template <class Kernel>
  void runOn(int rank, unsigned threads, const Kernel& kernel) {
    mscclpp::host::launch(1, threads, 0, [&] { kernel(windowOf(of(rank))); });
  }

  char* memory(int rank) { return of(rank).memory.data() + kGuard; }
  DeviceWindowReport& report(int rank) { return of(rank).report; }
  /// Whether nothing but the words named in `except` has changed at all.
  bool isUntouched(int rank) {
    const Rank& one = of(rank);
    const auto isClear = [](Word word) { return word == 0; };
    return std::all_of(one.memory.begin(), one.memory.end(), [](char c) { return c == -1; }) &&
           std::all_of(one.words.begin(), one.words.end(), isClear) &&
           std::all_of(std::begin(one.counts), std::end(one.counts), isClear);
  }
  bool isInside(int rank) {
    const auto& memory = of(rank).memory;
    const auto isClear = [](char c) { return c == -1; };
    return std::all_of(memory.begin(), memory.begin() + kGuard, isClear) &&
           std::all_of(memory.end() - kGuard, memory.end(), isClear);
  }

 private:
  struct Rank {
    std::vector<char> memory;
    std::vector<Word> words;
    std::vector<DeviceWindowPeer> peers;
    Word counts[kCounters] = {};
    Word rounds[kBarriers] = {};
    unsigned failed = 0;
    DeviceWindowReport report;
    TorchCommDeviceWindow window;
  };

  Rank& of(int rank) { return ranks_.at(static_cast<size_t>(rank)); }
  static TorchCommDeviceWindow& windowOf(Rank& rank) { return rank.window; }

  std::vector<Rank> ranks_;
};

/// Bytes that tell the rank, the round and the place.
char byteOf(int rank, int round, size_t i) {
  return static_cast<char>((static_cast<size_t>(rank) * 31 + static_cast<size_t>(round) * 7 + i) %
                           127);
}

std::vector<char> bytesOf(int rank, int round, size_t count) {
  std::vector<char> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = byteOf(rank, round, i);
  return bytes;
}

TEST(DeviceWindow, KnowsItsRankAndMemory) {
  World world(3);
  world.run(1, 1, [&](TorchCommDeviceWindow& window) {
    EXPECT_EQ(window.num_ranks(), 3);
    EXPECT_EQ(window.base(), world.memory(window.rank()));
    EXPECT_EQ(window.size(), kBytes);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(window.get_nvlink_address(r), world.memory(r));
    EXPECT_EQ(window.get_nvlink_address(3), nullptr);
    EXPECT_EQ(window.get_nvlink_address(-1), nullptr);
  });
}

/// A ring: each puts into the next rank's memory, which copies it away and says so.
TEST(DeviceWindow, DataIsThereBeforeItsSignal) {
  constexpr int kRounds = 20;
  for (const CoopScope scope : kScopes) {
    World world(3);
    const unsigned threads = scope == CoopScope::THREAD ? 1 : 64;
    std::atomic<int> wrong{0};
    world.run(1, threads, [&](TorchCommDeviceWindow& window) {
      if (scope == CoopScope::WARP && threadIdx.x >= 32) return;
      const int next = (window.rank() + 1) % 3, previous = (window.rank() + 2) % 3;
      const unsigned step = scope == CoopScope::THREAD ? 1
                            : scope == CoopScope::WARP ? 32
                                                       : threads;
      for (int round = 1; round <= kRounds; ++round) {
        const std::vector<char> expected = bytesOf(previous, round, kBytes);
        static thread_local std::vector<char> source;
        if (threadIdx.x == 0) source = bytesOf(window.rank(), round, kBytes);
        if (scope == CoopScope::BLOCK) __syncthreads();
        if (scope == CoopScope::WARP) __syncwarp();
        const RegisteredBuffer buffer{source.data(), source.size()};
        const Word lap = static_cast<Word>(round);
        wrong += window.put(0, buffer, 0, next, kBytes, 0, 1, scope) != kOk;
        wrong += window.wait_signal_from(previous, 0, CmpOp::EQ, lap, scope) != kOk;
        const char* const got = static_cast<char*>(window.base());
        for (size_t i = threadIdx.x; i < kBytes; i += step) wrong += got[i] != expected[i];
        wrong += window.signal(previous, 1, SignalOp::SET, lap, scope) != kOk;
        wrong += window.wait_signal(1, CmpOp::GE, lap, scope) != kOk;
        wrong += window.wait_counter(1, CmpOp::EQ, lap, scope) != kOk;
      }
    });
    EXPECT_EQ(wrong, 0);
    for (int r = 0; r < 3; ++r) EXPECT_TRUE(world.isInside(r));
  }
}

TEST(DeviceWindow, PutsMoveAnyBytesFromAnywhereToAnywhere) {
  World world(2);
  const std::vector<char> source = bytesOf(1, 1, kBytes);
  const RegisteredBuffer buffer{const_cast<char*>(source.data()), source.size()};
  for (const size_t from : {0, 1, 4, 19}) {
    for (const size_t to : {0, 3, 4, 16, 35}) {
      for (const size_t bytes : {0, 1, 15, 16, 17, 100, 1000}) {
        std::fill_n(world.memory(1), kBytes, -1);
        world.runOn(0, 48, [&](TorchCommDeviceWindow& window) {
          window.put(to, buffer, from, 1, bytes, -1, -1, CoopScope::BLOCK);
        });
        std::vector<char> expected(kBytes, -1);
        std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), bytes,
                    expected.begin() + static_cast<ptrdiff_t>(to));
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), world.memory(1)))
            << from << ' ' << to << ' ' << bytes;
      }
    }
  }
}

TEST(DeviceWindow, SignalsAddUpOverTheirSenders) {
  World world(3);
  world.run(4, 8, [&](TorchCommDeviceWindow& window) {
    for (int r = 0; r < 3; ++r) window.signal(r, 2, SignalOp::ADD, 5);
  });
  world.run(1, 1, [&](TorchCommDeviceWindow& window) {
    EXPECT_EQ(window.read_signal(2), 3U * 32 * 5);
    EXPECT_EQ(window.wait_signal_from(1, 2, CmpOp::EQ, 32 * 5), kOk);
    EXPECT_EQ(window.read_signal(0), 0U);
  });
  world.run(1, 1, [&](TorchCommDeviceWindow& window) { window.reset_signal(2); });
  world.run(1, 1, [&](TorchCommDeviceWindow& window) {
    EXPECT_EQ(window.read_signal(2), 0U);
    EXPECT_EQ(window.read_counter(0), 0U);
  });
}

TEST(DeviceWindow, ComparesWithoutASign) {
  World world(1);
  constexpr Word kLarge = Word{1} << 63;
  world.runOn(0, 1, [&](TorchCommDeviceWindow& window) {
    window.signal(0, 0, SignalOp::SET, kLarge);
    for (const auto& [op, value] : {std::pair{CmpOp::EQ, kLarge},
                                    {CmpOp::NE, Word{0}},
                                    {CmpOp::LT, kLarge + 1},
                                    {CmpOp::LE, kLarge},
                                    {CmpOp::GT, kLarge - 1},
                                    {CmpOp::GE, kLarge}}) {
      EXPECT_EQ(window.wait_signal(0, op, value), kOk);
    }
  });
}

TEST(DeviceWindow, CountersCountPutsAndAreReset) {
  World world(2);
  char source[8] = {};
  const RegisteredBuffer buffer{source, sizeof source};
  world.runOn(0, 8, [&](TorchCommDeviceWindow& window) {
    window.put(8 * threadIdx.x, buffer, 0, 1, 8, -1, 0);
    __syncthreads();
    EXPECT_EQ(window.wait_counter(0, CmpOp::EQ, 8), kOk);
    __syncthreads();
    if (threadIdx.x == 0) {
      EXPECT_EQ(window.reset_counter(0), kOk);
    }
    __syncthreads();
    EXPECT_EQ(window.read_counter(0), 0U);
    EXPECT_EQ(window.read_counter(1), 0U);
  });
}

TEST(DeviceWindow, BarriersHoldAllRanksUp) {
  for (const CoopScope scope : kScopes) {
    World world(4);
    std::atomic<int> arrived{0}, wrong{0};
    const unsigned threads = scope == CoopScope::THREAD ? 1 : scope == CoopScope::WARP ? 32 : 96;
    world.run(1, threads, [&](TorchCommDeviceWindow& window) {
      for (int round = 1; round <= 20; ++round) {
        if (threadIdx.x == 0) ++arrived;
        wrong += window.barrier(1, scope) != kOk;
        wrong += arrived < 4 * round;
        wrong += window.barrier(1, scope) != kOk;
      }
    });
    EXPECT_EQ(wrong, 0);
  }
}

TEST(DeviceWindow, AWaitInVainTimesOutAndSaysForWhom) {
  World world(3, 2'000'000);
  for (const CoopScope scope : kScopes) {
    world.runOn(0, scope == CoopScope::THREAD ? 1 : 32, [&](TorchCommDeviceWindow& window) {
      EXPECT_EQ(window.wait_signal_from(2, 1, CmpOp::NE, 0, scope), kTimedOut);
      EXPECT_EQ(window.barrier(0, scope), kTimedOut);  // the window has failed
    });
    EXPECT_EQ(world.report(0).status, unsigned{kTimedOut});
    EXPECT_EQ(world.report(0).what, What::Signal);
    EXPECT_EQ(world.report(0).peer, 2);
    EXPECT_EQ(world.report(0).value, 1U);
  }
  world.runOn(1, 1, [](TorchCommDeviceWindow& window) { EXPECT_EQ(window.barrier(1), kTimedOut); });
  EXPECT_EQ(world.report(1).what, What::Barrier);
  EXPECT_EQ(world.report(1).peer, 0);
  EXPECT_EQ(world.report(1).value, 1U);
}

TEST(DeviceWindow, AnAbortEndsAllWaitsAndReportsNothing) {
  World world(2, 0);
  std::atomic<int> ended{0};
  std::thread waiter([&] {
    world.runOn(0, 32, [&](TorchCommDeviceWindow& window) {
      ended += window.wait_signal(0, CmpOp::GE, 1, CoopScope::WARP) == kAborted;
      ended += window.wait_counter(0, CmpOp::GE, 1, CoopScope::WARP) == kAborted;
      ended += window.barrier(0, CoopScope::WARP) == kAborted;
    });
  });
  __atomic_store_n(&world.report(0).abort, 1U, __ATOMIC_RELAXED);
  waiter.join();
  EXPECT_EQ(ended, 3 * 32);
  EXPECT_EQ(world.report(0).status, unsigned{kOk});
}

TEST(DeviceWindow, WhatIsOutOfRangeIsReportedAndWritesNothing) {
  char source[64] = {};
  const RegisteredBuffer buffer{source, sizeof source};
  constexpr Word kHuge = ~Word{0};
  struct Case {
    What what;
    Word value, limit;
    int (*call)(TorchCommDeviceWindow&, const RegisteredBuffer&);
  };
  using Window = TorchCommDeviceWindow;
  const Case cases[] = {
      {What::Rank, 2, 2, [](Window& w, auto& b) { return w.put(0, b, 0, 2, 8); }},
      {What::Rank, kHuge, 2, [](Window& w, auto& b) { return w.put(0, b, 0, -1, 8); }},
      {What::Destination, 4090, kBytes, [](Window& w, auto& b) { return w.put(4090, b, 0, 1, 8); }},
      {What::Destination, kHuge, kBytes,
       [](Window& w, auto& b) { return w.put(kHuge, b, 0, 1, 8); }},
      {What::Destination, 8, kBytes, [](Window& w, auto& b) { return w.put(8, b, 0, 1, kHuge); }},
      {What::Source, 60, 64, [](Window& w, auto& b) { return w.put(0, b, 60, 1, 8); }},
      {What::Signal, 3, kSignals, [](Window& w, auto& b) { return w.put(0, b, 0, 1, 8, 3); }},
      {What::Signal, kHuge - 1, kSignals,
       [](Window& w, auto& b) { return w.put(0, b, 0, 1, 8, -2); }},
      {What::Counter, 2, kCounters, [](Window& w, auto& b) { return w.put(0, b, 0, 1, 8, 0, 2); }},
      {What::Rank, 5, 2, [](Window& w, auto&) { return w.signal(5, 0); }},
      {What::Signal, 3, kSignals, [](Window& w, auto&) { return w.signal(1, 3); }},
      {What::Signal, 3, kSignals, [](Window& w, auto&) { return w.wait_signal(3, CmpOp::EQ, 0); }},
      {What::Rank, 2, 2, [](Window& w, auto&) { return w.wait_signal_from(2, 0, CmpOp::EQ, 0); }},
      {What::Signal, kHuge, kSignals,
       [](Window& w, auto&) { return w.wait_signal_from(1, -1, CmpOp::EQ, 0); }},
      {What::Signal, 3, kSignals, [](Window& w, auto&) { return w.reset_signal(3); }},
      {What::Counter, 2, kCounters,
       [](Window& w, auto&) { return w.wait_counter(2, CmpOp::EQ, 0); }},
      {What::Counter, 9, kCounters, [](Window& w, auto&) { return w.reset_counter(9); }},
      {What::Barrier, 2, kBarriers, [](Window& w, auto&) { return w.barrier(2); }},
      {What::Signal, 7, kSignals,
       [](Window& w, auto&) { return w.read_signal(7) == 0 ? int{kOutOfRange} : 0; }},
      {What::Counter, 7, kCounters,
       [](Window& w, auto&) { return w.read_counter(7) == 0 ? int{kOutOfRange} : 0; }},
  };
  for (const Case& one : cases) {
    World world(2);
    world.runOn(0, 1, [&](Window& window) { EXPECT_EQ(one.call(window, buffer), kOutOfRange); });
    const DeviceWindowReport& report = world.report(0);
    EXPECT_EQ(report.status, unsigned{kOutOfRange});
    EXPECT_EQ(report.what, one.what);
    EXPECT_EQ(report.value, one.value);
    EXPECT_EQ(report.limit, one.limit);
    EXPECT_TRUE(world.isUntouched(0) && world.isUntouched(1));
  }
}

TEST(DeviceWindow, TheFirstFailureIsTheOneReported) {
  World world(2);
  world.runOn(0, 1, [](TorchCommDeviceWindow& window) {
    EXPECT_EQ(window.signal(1, 8), kOutOfRange);
    EXPECT_EQ(window.barrier(9), kOutOfRange);
    EXPECT_EQ(window.wait_signal(0, CmpOp::GE, 1), kOutOfRange);  // ends, in place of a timeout
  });
  EXPECT_EQ(world.report(0).what, What::Signal);
  EXPECT_EQ(world.report(0).value, 8U);
}

}  // namespace
}  // namespace torchcomms::device
