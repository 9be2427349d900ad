// Collectives of ranks in processes of their own, each as if on a host of its own, over the device.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "ctran/memory/shared_allocation.h"
#include "tests/unit/support/cases.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

constexpr Kind kKinds[] = {Kind::Barrier,       Kind::Broadcast,      Kind::AllReduce,
                           Kind::Reduce,        Kind::AllGather,      Kind::AllGatherV,
                           Kind::ReduceScatter, Kind::ReduceScatterV, Kind::Scatter,
                           Kind::Gather,        Kind::AllToAll,       Kind::AllToAllV};

void runAll(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  for (const Kind kind : kKinds) {
    for (const size_t count : {size_t{5}, size_t{1000}, size_t{100'000}}) {
      Case c;
      c.kind = kind;
      c.count = count;
      c.root = isRooted(kind) ? size - 1 : 0;
      c.whole = true;
      c.seed = count + static_cast<uint64_t>(kind);
      Inputs inputs;
      for (int r = 0; r < size; ++r) inputs.push_back(inputsOf(c, r, size));
      const Buffers buffers(c, rank, size, inputs[rank]);
      communicator.run(buffers.collective());
      EXPECT_EQ(buffers.check(expectedOf(c, rank, size, inputs)), "") << c.describe();
    }
  }
}

/// A message of int32 to or from the other rank of two.
Collective message(CollectiveKind kind, int32_t* data, size_t count, int peer) {
  Collective c;
  c.kind = kind;
  c.count = count;
  c.type = DataType::Int32;
  c.root = peer;
  if (kind == Kind::Send) {
    c.input = reinterpret_cast<std::byte*>(data);
  } else {
    c.output = reinterpret_cast<std::byte*>(data);
  }
  return c;
}

/// Memory that is unmapped, and mapped again at its address, has another key: through the old one a
/// device reads pages that nobody has any more.
TEST(Placed, MemoryThatIsMappedAgainIsNotReadThroughItsOldKey) {
  constexpr size_t kCount = 100'000;
  std::string folder = "/run/ctran-placed-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ForkedRanks ranks(2, [&](int rank) {
    CommunicatorOptions options = optionsFor(rank, 2, std::make_shared<DirectoryStore>(folder));
    options.hints["ctran::host"] = "host" + std::to_string(rank);
    const auto communicator = Communicator::create(options);
    const void* first = nullptr;
    int again = 0;
    for (int32_t round = 0; round < 30; ++round) {
      const auto memory = SharedAllocation::allocate(kCount * sizeof(int32_t));
      again += memory->data() == first;
      first = memory->data();
      auto* const values = reinterpret_cast<int32_t*>(memory->data());
      for (size_t i = 0; i < kCount; ++i) {
        values[i] = rank == 0 ? static_cast<int32_t>(i) + round : -1;
      }
      communicator->run(message(rank == 0 ? Kind::Send : Kind::Recv, values, kCount, 1 - rank));
      size_t right = 0;
      while (right < kCount && values[right] == static_cast<int32_t>(right) + round) ++right;
      ASSERT_EQ(right, kCount) << "round " << round;
    }
    EXPECT_GT(again, 10) << "the test has not seen what it is for";
    const std::string path =
        communicator->explain(Kind::AllReduce, 1000, DataType::Int32).network.front();
    if (rank == 0) {
      EXPECT_NE(path.find("sent without a copy"), std::string::npos) << path;
    }
    Case last;
    last.kind = Kind::Barrier;
    communicator->run(Buffers(last, rank, 2, {}).collective());
  });
  ranks.expectSuccess();
  std::filesystem::remove_all(folder);
}

class Collectives : public ::testing::TestWithParam<int> {};

TEST_P(Collectives, GoOverRdma) {
  const int size = GetParam();
  // The machine's other files cannot be written.
  std::string folder = "/run/ctran-collectives-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ForkedRanks ranks(size, [&](int rank) {
    CommunicatorOptions options = optionsFor(rank, size, std::make_shared<DirectoryStore>(folder));
    options.hints["ctran::host"] = "host" + std::to_string(rank);
    const auto communicator = Communicator::create(options);
    // Pairs change over while calls go on; then all of them have.
    for (int i = 0; i < 2; ++i) runAll(*communicator);
    for (const std::string& path :
         communicator->explain(Kind::AllReduce, 1000, DataType::Int32).network) {
      EXPECT_NE(path.find(": RDMA (rxe0:1)"), std::string::npos) << path;
    }
    Case last;
    last.kind = Kind::Barrier;
    communicator->run(Buffers(last, rank, size, {}).collective());
  });
  ranks.expectSuccess();
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Of, Collectives, ::testing::Values(2, 3),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace
}  // namespace ctran::testing
