// GPUs without torch: what a C++ program does with the engine's communicator, on the stand-ins.

#include "ctran/engine/gpu_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/gpu_domain.h"
#include "ctran/gpu/memory.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/stand_ins.h"

namespace ctran::testing {
namespace {

using std::chrono::milliseconds;

constexpr int kTwo = 2;
constexpr size_t kElements = 300;

std::shared_ptr<Communicator> onGpu(int device, const CommunicatorOptions& options) {
  auto comm = Communicator::create(options);
  comm->useGpu({.device = device});
  return comm;
}

/// A rank on a GPU of its own, with a stream and memory.
struct Rank {
  Rank(int rank, const std::shared_ptr<Store>& store)
      : comm(onGpu(rank, optionsFor(rank, kTwo, store))), device(rank) {}

  std::shared_ptr<Communicator> comm;
  const int device;
  const gpu::Runtime& runtime = gpu::Runtime::of(gpu::Platform::Cuda);
  const gpu::ActiveDevice active{runtime, device};
  const gpu::OwnStream stream{runtime, device, false};
  gpu::DeviceMemory memory =
      gpu::DeviceMemory::allocate(device, kElements*(kTwo + 1) * sizeof(int32_t));

  int32_t* input() const { return reinterpret_cast<int32_t*>(memory.address()); }
  int32_t* output() const { return input() + kElements; }
  /// Every rank's input, in their order.
  Collective gather() const {
    Collective c;
    c.kind = CollectiveKind::AllGather;
    c.type = DataType::Int32;
    c.count = kElements;
    c.input = reinterpret_cast<const std::byte*>(input());
    c.output = reinterpret_cast<std::byte*>(output());
    return c;
  }
  void synchronize() const {
    gpu::check(gpu::Driver::get().streamSynchronize(stream.get()), "cuStreamSynchronize");
  }
};

class GpuQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kThreadSanitizer) GTEST_SKIP() << "kernels are not compiled with it";
    standInRuntime();
    useStandInCompiler();
  }

  /// Calls `body` on a thread for each rank.
  static void run(const std::function<void(Rank&)>& body) {
    const auto store = std::make_shared<MemoryStore>();
    runThreads(kTwo, [&](int rank) {
      Rank self(rank, store);
      body(self);
      self.synchronize();
    });
  }

  static void fill(const Rank& rank, int32_t seed) {
    rank.synchronize();
    for (size_t i = 0; i < kElements; ++i) {
      rank.input()[i] = seed + 1000 * rank.comm->rank() + static_cast<int32_t>(i);
    }
    std::fill_n(rank.output(), kElements * kTwo, -1);
  }

  static void expectGathered(const Rank& rank, int32_t seed) {
    rank.synchronize();
    for (size_t i = 0; i < kElements * kTwo; ++i) {
      const auto from = static_cast<int32_t>(i / kElements),
                 at = static_cast<int32_t>(i % kElements);
      ASSERT_EQ(rank.output()[i], seed + 1000 * from + at) << i;
    }
  }
};

TEST_F(GpuQueueTest, AnOperationIsAWork) {
  run([](Rank& rank) {
    fill(rank, 7);
    auto buffer = std::make_shared<int>(1);
    const std::weak_ptr<int> kept = buffer;
    const std::shared_ptr<Work> work = rank.comm->gpu()->enqueue(
        rank.gather(), rank.stream.get(), {.keepAlive = [&] { return std::move(buffer); }});
    work->wait();
    EXPECT_EQ(work->state(), WorkState::Completed);
    EXPECT_TRUE(kept.expired());
    expectGathered(rank, 7);
    rank.comm->finalize();
  });
}

TEST_F(GpuQueueTest, AnOperationAsideOrdersAStreamThatWaits) {
  run([](Rank& rank) {
    fill(rank, 3);
    const auto work = rank.comm->gpu()->enqueue(rank.gather(), rank.stream.get(), {.aside = true});
    work->makeWait(rank.stream.get());
    expectGathered(rank, 3);
    rank.comm->finalize();
  });
}

TEST_F(GpuQueueTest, MessagesRunAtTheSameTime) {
  run([](Rank& rank) {
    fill(rank, 5);
    const int other = 1 - rank.comm->rank();
    Collective send, receive;
    send.kind = CollectiveKind::Send;
    receive.kind = CollectiveKind::Recv;
    send.type = receive.type = DataType::Int32;
    send.count = receive.count = kElements;
    send.root = receive.root = other;
    send.input = reinterpret_cast<const std::byte*>(rank.input());
    receive.output = reinterpret_cast<std::byte*>(rank.output());
    const Collective both[] = {send, receive};
    rank.comm->gpu()->enqueueMessages(both, rank.stream.get())->wait();
    EXPECT_EQ(rank.output()[kElements - 1], 5 + 1000 * other + static_cast<int32_t>(kElements) - 1);
    rank.comm->finalize();
  });
}

TEST_F(GpuQueueTest, AGraphIsReplayedAndKeepsTheCommunicator) {
  run([](Rank& rank) {
    const gpu::Driver& driver = gpu::Driver::get();
    const gpu::Stream stream = rank.stream.get();
    gpu::Graph graph = nullptr;
    gpu::GraphExec executable = nullptr;
    gpu::check(driver.streamBeginCapture(stream, gpu::CaptureMode::ThreadLocal), "capturing");
    EXPECT_EQ(rank.comm->gpu()->enqueue(rank.gather(), stream), nullptr);
    gpu::check(driver.streamEndCapture(stream, &graph), "capturing");
    gpu::check(driver.graphInstantiate(&executable, graph, 0), "making a graph");
    gpu::check(driver.graphDestroy(graph), "destroying a graph");
    EXPECT_TRUE(rank.comm->gpu()->hasGraphs());
    for (const int32_t seed : {1, 2}) {
      fill(rank, seed);
      rank.comm->run(Collective{});  // a barrier: nobody fills what others read
      gpu::check(driver.graphLaunch(executable, stream), "launching a graph");
      expectGathered(rank, seed);
    }
    gpu::check(driver.graphExecDestroy(executable), "destroying a graph");
    const auto giveUp = std::chrono::steady_clock::now() + kGuard;
    while (rank.comm->gpu()->hasGraphs() && std::chrono::steady_clock::now() < giveUp) {
      std::this_thread::yield();
    }
    EXPECT_FALSE(rank.comm->gpu()->hasGraphs());
    rank.comm->finalize();
  });
}

TEST_F(GpuQueueTest, ARankThatDoesNotCallIsNamedOnAllRanks) {
  run([](Rank& rank) {
    const auto late = [&] {
      if (rank.comm->rank() == 0) {
        rank.comm->gpu()
            ->enqueue(rank.gather(), rank.stream.get(), {.timeout = milliseconds(300)})
            ->wait();
      } else {
        while (!rank.comm->gpu()->isBroken()) std::this_thread::yield();  // the watchdog sees it
        rank.comm->gpu()->enqueue(rank.gather(), rank.stream.get());
      }
    };
    const Error error = errorOf(late);
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
  });
}

TEST_F(GpuQueueTest, AnAbortEndsTheOperationsOfAllRanks) {
  run([](Rank& rank) {
    const auto ended = [&] {
      if (rank.comm->rank() == 1) rank.comm->abort("enough");
      rank.comm->gpu()->enqueue(rank.gather(), rank.stream.get())->wait();
    };
    const Error error = errorOf(ended);
    EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
  });
}

TEST_F(GpuQueueTest, WhatIsPreparedIsNotSetUpInTheCall) {
  run([](Rank& rank) {
    const auto barrier = [&] { rank.comm->run(Collective{}); };
    const auto setUpsIn = [&](const std::function<void()>& body) {
      barrier();
      const unsigned before = standInSetUps();
      barrier();
      body();
      barrier();
      const unsigned after = standInSetUps();
      barrier();
      return after - before;
    };
    const auto reduce = [&](DataType type, ReduceKind op) {
      Collective c = rank.gather();
      c.kind = CollectiveKind::AllReduce;
      c.type = type;
      c.op.kind = op;
      rank.comm->gpu()->enqueue(c, rank.stream.get())->wait();
    };
    const auto prepare = [&](CollectiveKind kind, DataType type, ReduceKind op, const char* name) {
      rank.comm->gpu()->domain().prepareCall(kind, kElements * sizeOf(type), type, op,
                                             callHints({{"ctran::algorithm", name}}, false));
    };
    using enum CollectiveKind;
    EXPECT_NE(setUpsIn([&] { reduce(DataType::UInt16, ReduceKind::Min); }), 0u);
    EXPECT_NE(setUpsIn([&] { prepare(AllReduce, DataType::UInt16, ReduceKind::Max, "one_shot"); }),
              0u);
    EXPECT_EQ(setUpsIn([&] { reduce(DataType::UInt16, ReduceKind::Max); }), 0u);
    // The copy engines' slots, which all ranks map.
    EXPECT_NE(
        setUpsIn([&] { prepare(AllGather, DataType::Int32, ReduceKind::Sum, "copy_engine"); }), 0u);
    fill(rank, 1);
    EXPECT_EQ(setUpsIn([&] {
                Collective c = rank.gather();
                c.hints = callHints({{"ctran::algorithm", "copy_engine"}}, false);
                rank.comm->gpu()->enqueue(c, rank.stream.get())->wait();
              }),
              0u);
    expectGathered(rank, 1);
    rank.comm->finalize();
  });
}

TEST_F(GpuQueueTest, WhatAHintNamesIsPreparedAtCreation) {
  standInRuntime();
  const auto store = std::make_shared<MemoryStore>();
  runThreads(kTwo, [&](int rank) {
    CommunicatorOptions options = optionsFor(rank, kTwo, store);
    options.hints["ctran::algorithm"] = "all_gather=copy_engine";
    options.gpus = true;
    const auto comm = onGpu(rank, options);
    const auto barrier = [&] { comm->run(Collective{}); };
    const gpu::ActiveDevice active(comm->gpu()->runtime(), comm->gpu()->device());
    const auto memory = gpu::DeviceMemory::allocate(comm->gpu()->device(), 64 * (kTwo + 1));
    const gpu::OwnStream stream(comm->gpu()->runtime(), comm->gpu()->device(), false);
    Collective c;
    c.kind = CollectiveKind::AllGather;
    c.count = 64;
    c.input = reinterpret_cast<const std::byte*>(memory.address());
    c.output = reinterpret_cast<std::byte*>(memory.address()) + 64;
    barrier();
    const unsigned before = standInSetUps();
    barrier();
    comm->gpu()->enqueue(c, stream.get())->wait();
    barrier();
    EXPECT_EQ(standInSetUps(), before);
    comm->finalize();
  });
}

TEST_F(GpuQueueTest, ACommunicatorIsGivenGpusOnceAndHasNoneBefore) {
  standInRuntime();
  const auto store = std::make_shared<MemoryStore>();
  runThreads(kTwo, [&](int rank) {
    const auto comm = Communicator::create(optionsFor(rank, kTwo, store));
    EXPECT_EQ(comm->gpu(), nullptr);
    const Error none = errorOf([&] { comm->enqueue(Collective{}, nullptr, {}); });
    EXPECT_EQ(none.kind(), ErrorKind::InvalidArgument) << none.what();
    comm->useGpu({.device = rank});
    EXPECT_EQ(comm->gpu()->device(), rank);
    const Error twice = errorOf([&] { comm->useGpu({.device = rank}); });
    EXPECT_EQ(twice.kind(), ErrorKind::InvalidArgument) << twice.what();
    comm->run(Collective{});  // on the CPU, too
    comm->finalize();
  });
}

TEST_F(GpuQueueTest, OperationsOutliveTheProgramsPointerToTheCommunicator) {
  standInRuntime();
  const auto store = std::make_shared<MemoryStore>();
  runThreads(kTwo, [&](int rank) {
    Rank one(rank, store);
    fill(one, 4);
    auto work = one.comm->gpu()->enqueue(one.gather(), one.stream.get());
    const std::weak_ptr<Communicator> weak = one.comm;
    one.comm.reset();
    work->wait();
    work.reset();
    expectGathered(one, 4);
    const auto giveUp = std::chrono::steady_clock::now() + kGuard;
    while (!weak.expired() && std::chrono::steady_clock::now() < giveUp) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(weak.expired());
  });
}

TEST_F(GpuQueueTest, AWrongCallBreaksNothing) {
  run([](Rank& rank) {
    Collective wrong = rank.gather();
    wrong.output = nullptr;
    EXPECT_EQ(errorOf([&] { rank.comm->gpu()->enqueue(wrong, rank.stream.get()); }).kind(),
              ErrorKind::InvalidArgument);
    fill(rank, 1);
    rank.comm->gpu()->enqueue(rank.gather(), rank.stream.get())->wait();
    expectGathered(rank, 1);
    rank.comm->finalize();
  });
}

}  // namespace
}  // namespace ctran::testing
