// GPUs in several domains: of several hosts, and of one host with more ranks than a domain has.

#include "ctran/engine/gpu_hosts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/gpu_queue.h"
#include "ctran/gpu/memory.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/stand_ins.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;
using std::chrono::milliseconds;

/// A rank on a GPU of its own, with a stream and memory for an input and an output of all blocks.
struct GpuRank {
  GpuRank(CommunicatorOptions options, size_t count)
      : count(count), device(options.rank), comm(Communicator::create(options)) {
    comm->useGpu({.device = device});
    queue = comm->gpu();
    memory = gpu::DeviceMemory::allocate(device, 2 * count * comm->size() * sizeof(int32_t));
  }

  const size_t count;
  const int device;
  std::shared_ptr<Communicator> comm;
  std::shared_ptr<GpuQueue> queue;
  const gpu::ActiveDevice active{gpu::Runtime::of(gpu::Platform::Cuda), device};
  const gpu::OwnStream stream{gpu::Runtime::of(gpu::Platform::Cuda), device, false};
  gpu::DeviceMemory memory;

  int rank() const { return comm->rank(); }
  int size() const { return comm->size(); }
  int32_t* input() const { return reinterpret_cast<int32_t*>(memory.address()); }
  int32_t* output() const { return input() + count * size(); }
  Collective call(Kind kind) const {
    Collective c;
    c.kind = kind;
    c.type = DataType::Int32;
    c.op = {ReduceKind::Sum};
    c.count = count;
    c.root = size() - 1;
    c.input = reinterpret_cast<const std::byte*>(input());
    c.output = reinterpret_cast<std::byte*>(output());
    return c;
  }
  void synchronize() const {
    gpu::check(gpu::Driver::get().streamSynchronize(stream.get()), "cuStreamSynchronize");
  }
};

/// What a rank has for another one at a place of its block.
int32_t valueOf(int from, int to, size_t at) {
  return static_cast<int32_t>(at * 7 % 1000) + 1000 * from + 100'000 * to;
}

class GpuHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kThreadSanitizer) GTEST_SKIP() << "kernels are not compiled with it";
    standInRuntime();
    useStandInCompiler();
    ::setenv("CTRAN_GPU_HOSTS_STEP_BYTES", "65536", 1);
  }
  void TearDown() override { ::unsetenv("CTRAN_GPU_HOSTS_STEP_BYTES"); }

  /// Calls `body` on a thread for each rank; `hosts` says where each one is.
  static void run(const std::vector<std::string>& hosts, size_t count,
                  const std::function<void(GpuRank&)>& body, const std::string& algorithm = {}) {
    const auto store = std::make_shared<MemoryStore>();
    runThreads(static_cast<int>(hosts.size()), [&](int rank) {
      CommunicatorOptions options = optionsFor(rank, static_cast<int>(hosts.size()), store);
      options.gpus = true;
      if (!hosts[rank].empty()) options.hints["ctran::host"] = hosts[rank];
      if (!algorithm.empty()) options.hints["ctran::algorithm"] = algorithm;
      GpuRank self(options, count);
      body(self);
      self.synchronize();
    });
  }

  static void fill(const GpuRank& rank) {
    for (int to = 0; to < rank.size(); ++to) {
      for (size_t i = 0; i < rank.count; ++i) {
        rank.input()[to * rank.count + i] = valueOf(rank.rank(), to, i);
      }
    }
    std::fill_n(rank.output(), rank.count * rank.size(), -1);
  }

  /// Block `block` of the output.
  static void expect(const GpuRank& rank, size_t block,
                     const std::function<int32_t(size_t)>& value) {
    for (size_t i = 0; i < rank.count; ++i) {
      ASSERT_EQ(rank.output()[block * rank.count + i], value(i))
          << "block " << block << " at " << i << " of rank " << rank.rank();
    }
  }

  static int32_t sumTo(const GpuRank& rank, int to, size_t at) {
    int32_t sum = 0;
    for (int from = 0; from < rank.size(); ++from) sum += valueOf(from, to, at);
    return sum;
  }

  static void check(GpuRank& rank, Kind kind) {
    SCOPED_TRACE(nameOf(kind));
    fill(rank);
    const Collective c = rank.call(kind);
    if (kind == Kind::Broadcast && rank.rank() == c.root) {
      std::copy_n(rank.input(), rank.count, rank.output());
    }
    rank.queue->enqueue(c, rank.stream.get())->wait();
    const int own = rank.rank();
    switch (kind) {
      case Kind::AllReduce:
        return expect(rank, 0, [&](size_t i) { return sumTo(rank, 0, i); });
      case Kind::ReduceScatter:
        return expect(rank, 0, [&](size_t i) { return sumTo(rank, own, i); });
      case Kind::Broadcast:
        return expect(rank, 0, [&](size_t i) { return valueOf(c.root, 0, i); });
      default:
        for (int from = 0; from < rank.size(); ++from) {
          expect(rank, from,
                 [&](size_t i) { return valueOf(from, kind == Kind::AllToAll ? own : 0, i); });
        }
    }
  }
};

constexpr Kind kByRails[] = {Kind::AllReduce, Kind::ReduceScatter, Kind::AllGather, Kind::Broadcast,
                             Kind::AllToAll};

TEST_F(GpuHostsTest, RailsAndTheHostGiveTheSame) {
  for (const char* algorithm : {"rails", "through_host"}) {
    SCOPED_TRACE(algorithm);
    // In several steps.
    run(
        {"a", "b", "a", "b"}, 40'001,
        [](GpuRank& rank) {
          ASSERT_TRUE(rank.queue->spansDomains());
          for (const Kind kind : kByRails) check(rank, kind);
          rank.comm->finalize();
        },
        algorithm);
  }
}

TEST_F(GpuHostsTest, AHostOfMoreRanksHasSeveralDomains) {
  run(std::vector<std::string>(9), 300, [](GpuRank& rank) {
    ASSERT_TRUE(rank.queue->spansDomains());
    EXPECT_FALSE(rank.comm->spansHosts());
    for (const Kind kind : kByRails) check(rank, kind);
    rank.comm->finalize();
  });
}

TEST_F(GpuHostsTest, ASplitThatHasOneDomainGoesWithoutTheHost) {
  run({"a", "a", "b"}, 300, [](GpuRank& rank) {
    const std::vector<int> near = rank.rank() < 2 ? std::vector{0, 1} : std::vector{2};
    const auto part = rank.comm->split(near, "part");
    part->useGpu({.device = rank.device});
    EXPECT_FALSE(part->gpu()->spansDomains());
    part->finalize();
    rank.comm->finalize();
  });
}

TEST_F(GpuHostsTest, ARankOfAnotherHostThatDoesNotCallIsNamed) {
  run({"a", "b"}, 300, [](GpuRank& rank) {
    const auto late = [&] {
      if (rank.rank() == 0) {
        rank.queue
            ->enqueue(rank.call(Kind::AllReduce), rank.stream.get(), {.timeout = milliseconds(300)})
            ->wait();
      } else {
        while (!rank.queue->isBroken()) std::this_thread::yield();  // the watchdog sees it
        rank.queue->enqueue(rank.call(Kind::AllReduce), rank.stream.get());
      }
    };
    const Error error = errorOf(late);
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
  });
}

TEST_F(GpuHostsTest, AnAbortEndsTheOperationsOfAllHosts) {
  run({"a", "b", "b"}, 300, [](GpuRank& rank) {
    const auto ended = [&] {
      if (rank.rank() == 1) rank.comm->abort("enough");
      rank.queue->enqueue(rank.call(Kind::AllReduce), rank.stream.get())->wait();
    };
    const Error error = errorOf(ended);
    EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
  });
}

TEST_F(GpuHostsTest, ARankOfAnotherHostThatHasLeftIsNamed) {
  std::atomic<bool> left{false}, noticed{false};
  run({"a", "b"}, 300, [&](GpuRank& rank) {
    if (rank.rank() == 1) {
      rank.comm->finalize();
      left = true;
      return awaitFlag(noticed);
    }
    awaitFlag(left);
    const Error error = errorOf(
        [&] { rank.queue->enqueue(rank.call(Kind::AllReduce), rank.stream.get())->wait(); });
    noticed = true;
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
  });
}

TEST_F(GpuHostsTest, WhereTheHostsMemoryIsNotWantedThereIsOneDomain) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(2, [&](int rank) {
    CommunicatorOptions options = optionsFor(rank, 2, store);
    options.hints["ctran::host"] = "host" + std::to_string(rank);
    const auto comm = Communicator::create(options);
    const Error error =
        errorOf([&] { comm->useGpu({.device = rank, .fallback = GpuFallback::None}); });
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported) << error.what();
  });
}

}  // namespace
}  // namespace ctran::testing
