// Real hosts as far as TCP can tell: a network namespace each, joined by a bridge.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "tests/unit/support/cases.h"
#include "tests/unit/support/network.h"
#include "tests/unit/support/ranks.h"

#if !defined(__SANITIZE_THREAD__)

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

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
    EXPECT_TRUE(communicator->spansHosts());
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

TEST(NetworkOf, TimeoutTellsOfALinkThatIsDown) {
  const NetworkOfHosts network(2);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  const TemporaryDirectory directory;
  Shared<Barrier> state;
  ForkedRanks ranks(2, [&](int rank) {
    network.enter(rank);
    const auto communicator = join(directory, rank, 2);
    communicator->run({});
    ++state->arrived;
    awaitFlag(state->go);
    communicator->setTimeout(std::chrono::seconds(2));
    const Error error = errorOf([&] { communicator->run({}); });
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{1 - rank}) << error.what();
    EXPECT_EQ(error.hint(), "see the network between the hosts") << error.what();
    ++state->arrived;
    while (state->arrived < 4) ::usleep(1000);
  });
  while (state->arrived < 2) ::usleep(1000);
  network.cut(1);
  state->go = true;
  ranks.expectSuccess();
}

/// A host that is gone without a word: noticed by keep-alive where this rank waits for data, and by
/// what is not acknowledged where it sends.
TEST(NetworkOf, HostThatDisappearsIsNamed) {
  struct Call {
    size_t bytes;
    bool byDefault;  // after the ten seconds that nobody has to ask for
  };
  for (const Call& call :
       {Call{8, false}, Call{40'000'000, false}, Call{8, true}, Call{400'000'000, true}}) {
    const size_t bytes = call.bytes;
    const bool byDefault = call.byDefault;
    if (byDefault && !testsEverything()) continue;
    const NetworkOfHosts network(3);
    if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
    if (bytes > 8) network.limit(2, 100);
    const TemporaryDirectory directory;
    Shared<Barrier> state;
    constexpr int kLost = 2;
    ForkedRanks ranks(3, [&](int rank) {
      network.enter(rank);
      if (!byDefault) ::setenv("CTRAN_TCP_LOST_MILLIS", "1000", 1);
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

Collective broadcastOf(std::vector<std::byte>& data) {
  Collective c;
  c.kind = Kind::Broadcast;
  c.type = DataType::UInt8;
  c.count = data.size();
  c.output = data.data();
  return c;
}

/// Over all ranks, in place.
Collective minimumOf(int32_t& number) {
  Collective c;
  c.kind = Kind::AllReduce;
  c.type = DataType::Int32;
  c.op.kind = ReduceKind::Min;
  c.count = 1;
  c.input = reinterpret_cast<const std::byte*>(&number);
  c.output = reinterpret_cast<std::byte*>(&number);
  return c;
}

/// Data of a large broadcast from rank 0, and what the others get.
std::vector<std::byte> largeData(int rank) {
  std::vector<std::byte> data(24 << 20);
  for (size_t i = 0; rank == 0 && i < data.size(); ++i) data[i] = std::byte(i * 5 + (i >> 12));
  return data;
}

TEST(NetworkOf, AllInterfacesThatAreNamedCarryData) {
  for (const char* family : {"ipv4", "ipv6"}) {
    const NetworkOfHosts network(2, 2);
    if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
    for (const int at : {0, 1}) network.limit(1, 800, at);
    const TemporaryDirectory directory;
    ForkedRanks ranks(2, [&](int rank) {
      network.enter(rank);
      ::setenv("CTRAN_TCP_FAMILY", family, 1);
      ::setenv("CTRAN_TCP_INTERFACES", "eth*", 1);
      const auto communicator = join(directory, rank, 2);
      std::vector<std::byte> data = largeData(rank);
      // The second connection comes while the first one works, on a busy machine somewhat later.
      Transport& transport = *communicator->transport();
      for (int tries = 0; tries < 60; ++tries) {
        communicator->run(broadcastOf(data));
        int32_t connections = transport.connections(1 - rank);
        communicator->run(minimumOf(connections));
        if (connections == 2) break;
      }
      for (int i = 0; i < 2; ++i) communicator->run(broadcastOf(data));
      EXPECT_TRUE(data == largeData(0));
      EXPECT_EQ(transport.connections(1 - rank), 2);
      if (rank == 0) {
        EXPECT_GT(NetworkOfHosts::sentBy("eth0"), data.size() / 8);
        EXPECT_GT(NetworkOfHosts::sentBy("eth1"), data.size() / 8);
      }
      communicator->finalize();
    });
    ranks.expectSuccess();
  }
}

TEST(NetworkOf, OneInterfaceIsUsedWhereNoneIsNamed) {
  const NetworkOfHosts network(2, 2);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  const TemporaryDirectory directory;
  ForkedRanks ranks(2, [&](int rank) {
    network.enter(rank);
    ::setenv("CTRAN_TCP_CONNECTIONS", "3", 1);
    const auto communicator = join(directory, rank, 2);
    std::vector<std::byte> data = largeData(rank);
    communicator->run(broadcastOf(data));
    communicator->run(broadcastOf(data));
    EXPECT_TRUE(data == largeData(0));
    Transport& transport = *communicator->transport();
    EXPECT_EQ(transport.connections(1 - rank), 3);
    if (rank == 0) {
      const uint64_t by[] = {NetworkOfHosts::sentBy("eth0"), NetworkOfHosts::sentBy("eth1")};
      EXPECT_GT(std::max(by[0], by[1]), 2 * data.size());
      EXPECT_LT(std::min(by[0], by[1]), 100'000u);
    }
    communicator->finalize();
  });
  ranks.expectSuccess();
}

TEST(NetworkOf, AnInterfaceThatLeadsNowhereIsDoneWithout) {
  const NetworkOfHosts network(2, 2);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  network.cut(1, 1);
  const TemporaryDirectory directory;
  ForkedRanks ranks(2, [&](int rank) {
    network.enter(rank);
    ::setenv("CTRAN_TCP_INTERFACES", "eth*", 1);
    ::setenv("CTRAN_TCP_FAMILY", "ipv4", 1);
    const auto communicator = join(directory, rank, 2);
    std::vector<std::byte> data = largeData(rank);
    for (int i = 0; i < 3; ++i) communicator->run(broadcastOf(data));
    EXPECT_TRUE(data == largeData(0));
    Transport& transport = *communicator->transport();
    EXPECT_EQ(transport.connections(1 - rank), 1);
    communicator->finalize();
  });
  ranks.expectSuccess();
}

/// One of two interfaces is gone without a word: the pair fails as if it had been the only one.
TEST(NetworkOf, AnInterfaceThatDisappearsIsALoss) {
  const NetworkOfHosts network(2, 2);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  const TemporaryDirectory directory;
  Shared<Barrier> state;
  ForkedRanks ranks(2, [&](int rank) {
    network.enter(rank);
    ::setenv("CTRAN_TCP_LOST_MILLIS", "1000", 1);
    ::setenv("CTRAN_TCP_INTERFACES", "eth*", 1);
    const auto communicator = join(directory, rank, 2);
    Transport& transport = *communicator->transport();
    std::vector<std::byte> data = largeData(rank);
    while (transport.connections(1 - rank) < 2) communicator->run(broadcastOf(data));
    ++state->arrived;
    const Error error = errorOf([&] {
      while (true) communicator->run(broadcastOf(data));
    });
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
    EXPECT_FALSE(error.ranks().empty()) << error.what();
  });
  while (state->arrived < 2) ::usleep(1000);
  network.cut(1, 1);
  ranks.expectSuccess();
}

}  // namespace
}  // namespace ctran::testing

#endif
