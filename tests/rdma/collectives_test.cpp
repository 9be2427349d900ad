// Collectives of ranks in processes of their own, each as if on a host of its own, over the device.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
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
