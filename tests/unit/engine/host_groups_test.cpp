// Hosts of several ranks: these meet in shared memory, and what breaks is told to all hosts.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <barrier>
#include <cstring>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

constexpr int kFour = 4;  // two on each of two hosts

CommunicatorOptions twoPerHost(int rank, std::shared_ptr<Store> store) {
  auto options = optionsFor(rank, kFour, std::move(store));
  options.hints["ctran::host"] = "host" + std::to_string(rank / 2);
  return options;
}

Collective callWith(Kind kind, std::vector<std::byte>& data, size_t count, int root = 0) {
  Collective c;
  c.kind = kind;
  c.type = DataType::Int32;
  c.count = count;
  c.root = root;
  const size_t bytes = sizeof(int32_t) * count * kFour;
  data.resize(2 * bytes + 1);
  c.input = data.data();
  c.output = data.data() + bytes;
  return c;
}

/// Calls `body` on all ranks after all have joined.
void runJoined(const std::function<void(Communicator&, int)>& body) {
  const auto store = std::make_shared<MemoryStore>();
  std::barrier together(kFour);
  runThreads(kFour, [&](int rank) {
    const auto communicator = Communicator::create(twoPerHost(rank, store));
    together.arrive_and_wait();
    try {
      body(*communicator, rank);
    } catch (const Error& error) {  // the others must not wait for this rank
      ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
    }
    together.arrive_and_wait();
  });
}

TEST(HostGroups, MeetInSharedMemory) {
  runJoined([](Communicator& communicator, int rank) {
    std::vector<std::byte> data;
    for (const size_t count : {size_t{3}, size_t{1'000'000}}) {
      communicator.run(callWith(Kind::AllReduce, data, count));
      communicator.run(callWith(Kind::AllGather, data, count));
      communicator.run(callWith(Kind::ReduceScatter, data, count));
      communicator.run(callWith(Kind::Broadcast, data, count, 1));
      const int neighbour = rank ^ 1;
      const auto sent = communicator.post(callWith(Kind::Send, data, count, neighbour));
      std::vector<std::byte> got;
      communicator.run(callWith(Kind::Recv, got, count, neighbour));
      sent->wait();
    }
    // Each to the rank of its place on the other host.
    EXPECT_EQ(communicator.transport()->connections(), 1);
  });
}

TEST(HostGroups, MessagesFindTheirRanksOnBothHosts) {
  runJoined([](Communicator& communicator, int rank) {
    for (const size_t count : {size_t{1}, size_t{300'000}}) {
      std::vector<std::vector<std::byte>> sent(kFour), got(kFour);
      std::vector<std::shared_ptr<Work>> works;
      for (int peer = 0; peer < kFour; ++peer) {
        Collective c = callWith(Kind::Send, sent[peer], count, peer);
        std::fill(sent[peer].begin(), sent[peer].end(), std::byte(16 * rank + peer + 1));
        works.push_back(communicator.post(c));
        works.push_back(communicator.post(callWith(Kind::Recv, got[peer], count, peer)));
      }
      for (const auto& work : works) work->wait();
      for (int peer = 0; peer < kFour; ++peer) {
        EXPECT_EQ(std::count(got[peer].begin(), got[peer].end(), std::byte(16 * peer + rank + 1)),
                  static_cast<std::ptrdiff_t>(4 * count));
      }
    }
  });
}

TEST(HostGroups, EachRankHearsOfAnAbort) {
  for (const int aborter : {1, 2, 3}) {
    runJoined([&](Communicator& communicator, int rank) {
      if (rank == aborter) return communicator.abort("for a reason");
      std::vector<std::byte> data;
      const Error error = errorOf([&] {
        if (rank == 0) {
          communicator.post(callWith(Kind::AllReduce, data, 500'000))->wait();
        } else {
          communicator.run(callWith(Kind::AllReduce, data, 500'000));
        }
      });
      EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{aborter}) << error.what();
      EXPECT_TRUE(communicator.isAborted());
    });
  }
}

TEST(HostGroups, WhoDoesNotComeIsNamed) {
  for (const int missing : {0, 3}) {
    runJoined([&](Communicator& communicator, int rank) {
      if (rank == missing) return;
      std::vector<std::byte> data;
      const Error error =
          errorOf([&] { communicator.run(callWith(Kind::AllReduce, data, 1000), kArrival); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{missing}) << error.what();
    });
  }
}

TEST(HostGroups, WhoLeavesEarlyIsNamed) {
  runJoined([](Communicator& communicator, int rank) {
    if (rank == 3) return communicator.finalize();
    const Error error = errorOf([&] { communicator.run({}); });
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{3}) << error.what();
  });
}

TEST(HostGroups, DifferentCallsAreToldToAll) {
  for (const int odd : {0, 3}) {
    for (const size_t count : {size_t{4}, size_t{400'000}}) {
      runJoined([&](Communicator& communicator, int rank) {
        std::vector<std::byte> data;
        const Error error = errorOf([&] {
          communicator.run(callWith(Kind::AllReduce, data, 10));
          communicator.run(callWith(rank == odd ? Kind::AllGather : Kind::AllReduce, data, count));
          while (true) communicator.run({});
        });
        EXPECT_EQ(error.kind(), ErrorKind::Mismatch) << error.what();
        const std::string text = error.what();
        EXPECT_NE(text.find("collective 2 differs"), std::string::npos) << text;
        EXPECT_NE(text.find("all_gather"), std::string::npos) << text;
        EXPECT_NE(text.find("all_reduce"), std::string::npos) << text;
        EXPECT_EQ(std::count(error.ranks().begin(), error.ranks().end(), odd), 1) << text;
      });
    }
  }
}

TEST(HostGroups, RankOrderIsTheOnlyOrderThatCanBeAskedFor) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(kFour, [&](int rank) {
    auto options = twoPerHost(rank, store);
    options.hints["ctran::deterministic"] = "maybe";
    EXPECT_EQ(errorOf([&] { Communicator::create(options); }).kind(), ErrorKind::InvalidArgument);
  });
}

#if !defined(__SANITIZE_THREAD__)

class HostGroupsKilled : public ::testing::TestWithParam<std::tuple<Kind, size_t, int>> {};

TEST_P(HostGroupsKilled, RankIsNamedByAll) {
  const auto [kind, count, victim] = GetParam();
  const TemporaryDirectory directory;
  Shared<Barrier> barrier;
  ForkedRanks ranks(kFour, [&, kind = kind, count = count, victim = victim](int rank) {
    const auto communicator =
        Communicator::create(twoPerHost(rank, std::make_shared<DirectoryStore>(directory.path())));
    barrier->arrive(kFour + 1);
    if (rank == victim) {
      while (true) ::pause();
    }
    std::vector<std::byte> data;
    const Collective c = callWith(kind, data, count, victim);
    const Error error = errorOf([&] {
      while (true) communicator->run(c);
    });
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{victim}) << error.what();
    EXPECT_EQ(errorOf([&] { communicator->run({}); }).ranks(), std::vector<int>{victim});
  });
  barrier->arrive(kFour + 1);
  for (int r = 0; r < kFour; ++r) awaitSleep(ranks.pid(r));
  ranks.kill(victim, SIGKILL);
  ranks.expectSuccess({victim});
}

INSTANTIATE_TEST_SUITE_P(In, HostGroupsKilled,
                         ::testing::Combine(::testing::Values(Kind::Barrier, Kind::Broadcast,
                                                              Kind::AllReduce, Kind::AllGather,
                                                              Kind::AllToAll, Kind::Recv),
                                            ::testing::Values(8, 400'000), ::testing::Values(0, 3)),
                         [](const auto& info) {
                           std::string name(nameOf(std::get<0>(info.param)));
                           std::erase(name, '_');
                           return name + (std::get<1>(info.param) > 8 ? "Large" : "Small") +
                                  "Rank" + std::to_string(std::get<2>(info.param));
                         });

#endif

}  // namespace
}  // namespace ctran::testing
