// Real hosts as far as TCP can tell: a network namespace each, joined by a bridge.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/hosts_communicator.h"
#include "tests/unit/support/cases.h"
#include "tests/unit/support/network.h"
#include "tests/unit/support/ranks.h"

#if !defined(__SANITIZE_THREAD__)

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

constexpr Kind kKinds[] = {Kind::Barrier,       Kind::Broadcast,      Kind::AllReduce,
                           Kind::Reduce,        Kind::AllGather,      Kind::AllGatherV,
                           Kind::ReduceScatter, Kind::ReduceScatterV, Kind::Scatter,
                           Kind::Gather,        Kind::AllToAll,       Kind::AllToAllV};

std::shared_ptr<Communicator> join(const TemporaryDirectory& directory, int rank, int size) {
  return Communicator::create(
      optionsFor(rank, size, std::make_shared<DirectoryStore>(directory.path())));
}

/// Every collective, small and large; each rank computes what all others put in.
void runAll(Communicator& communicator, size_t largest) {
  const int rank = communicator.rank(), size = communicator.size();
  for (const Kind kind : kKinds) {
    for (const size_t count : {size_t{5}, largest}) {
      Case c;
      c.kind = kind;
      c.count = count;
      c.root = isRooted(kind) ? size - 1 : 0;
      c.posted = count != 5;
      c.whole = true;
      c.seed = count + static_cast<uint64_t>(kind);
      Inputs inputs;
      for (int r = 0; r < size; ++r) inputs.push_back(inputsOf(c, r, size));
      const Buffers buffers(c, rank, size, inputs[rank]);
      if (c.posted) {
        communicator.post(buffers.collective())->wait();
      } else {
        communicator.run(buffers.collective());
      }
      EXPECT_EQ(buffers.check(expectedOf(c, rank, size, inputs)), "") << c.describe();
    }
  }
}

struct Shape {
  int hosts, ranksPerHost;
};

class Network : public ::testing::TestWithParam<Shape> {};

TEST_P(Network, EveryCollectiveWorks) {
  const auto [hosts, ranksPerHost] = GetParam();
  const NetworkOfHosts network(hosts);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  const TemporaryDirectory directory;
  ForkedRanks ranks(hosts * ranksPerHost, [&, perHost = ranksPerHost, count = hosts](int rank) {
    network.enter(rank / perHost);
    const auto communicator = join(directory, rank, count * perHost);
    EXPECT_NE(dynamic_cast<HostsCommunicator*>(communicator.get()), nullptr);
    runAll(*communicator, 20'000);
    communicator->finalize();
  });
  ranks.expectSuccess();
}

INSTANTIATE_TEST_SUITE_P(Of, Network,
                         ::testing::Values(Shape{2, 1}, Shape{2, 4}, Shape{3, 2}, Shape{4, 1}),
                         [](const auto& info) {
                           return std::to_string(info.param.hosts) + "HostsOf" +
                                  std::to_string(info.param.ranksPerHost);
                         });

TEST(NetworkOf, Ipv6AloneWillDo) {
  const NetworkOfHosts network(2);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  const TemporaryDirectory directory;
  ForkedRanks ranks(2, [&](int rank) {
    network.enter(rank);
    ::setenv("CTRAN_TCP_FAMILY", "ipv6", 1);
    ::setenv("CTRAN_TCP_INTERFACES", "eth*,^lo", 1);
    const auto communicator = join(directory, rank, 2);
    runAll(*communicator, 1000);
    communicator->finalize();
  });
  ranks.expectSuccess();
}

TEST(NetworkOf, SlowLinkGivesTheSameResults) {
  const NetworkOfHosts network(2);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  network.limit(1, 200);
  const TemporaryDirectory directory;
  ForkedRanks ranks(2, [&](int rank) {
    network.enter(rank);
    const auto communicator = join(directory, rank, 2);
    runAll(*communicator, 50'000);
    communicator->finalize();
  });
  ranks.expectSuccess();
}

TEST(NetworkOf, HostsThatCannotReachEachOtherAreToldSo) {
  const NetworkOfHosts network(2);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  const TemporaryDirectory directory;
  ForkedRanks ranks(2, [&](int rank) {
    network.enter(rank);
    ::setenv("CTRAN_TCP_INTERFACES", "lo", 1);
    auto options = optionsFor(rank, 2, std::make_shared<DirectoryStore>(directory.path()));
    options.timeout = std::chrono::seconds(1);
    const Error error = errorOf([&] { Communicator::create(options); });
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{1 - rank}) << error.what();
  });
  ranks.expectSuccess();
}

struct State {
  std::atomic<int> arrived;
  std::atomic<bool> go;
};

/// A host that is gone without a word: noticed by keep-alive where this rank waits for data, and by
/// what is not acknowledged where it sends.
TEST(NetworkOf, HostThatDisappearsIsNamed) {
  for (const size_t bytes : {size_t{8}, size_t{40'000'000}}) {
    const NetworkOfHosts network(3);
    if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
    if (bytes > 8) network.limit(2, 100);
    const TemporaryDirectory directory;
    Shared<State> state;
    constexpr int kLost = 2;
    ForkedRanks ranks(3, [&](int rank) {
      network.enter(rank);
      ::setenv("CTRAN_TCP_LOST_MILLIS", "1000", 1);
      const auto communicator = join(directory, rank, 3);
      std::vector<std::byte> data(bytes);
      Collective c;
      c.kind = Kind::Broadcast;
      c.type = DataType::UInt8;
      c.count = bytes;
      c.output = data.data();
      communicator->run({});
      ++state->arrived;
      if (rank == kLost && bytes == 8) awaitFlag(state->go);
      const Error error = errorOf([&] {
        c.root = bytes == 8 ? kLost : 0;
        while (true) communicator->run(c);
      });
      EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
      if (rank != kLost) {
        EXPECT_EQ(error.ranks(), std::vector<int>{kLost}) << error.what();
      }
    });
    while (state->arrived < 3) ::usleep(1000);
    if (bytes == 8) {
      awaitSleep(ranks.pid(0));
      awaitSleep(ranks.pid(1));
    }
    network.cut(kLost);
    state->go = true;
    ranks.expectSuccess();
  }
}

}  // namespace
}  // namespace ctran::testing

#endif
