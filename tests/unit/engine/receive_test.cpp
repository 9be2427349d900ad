// Receives from any rank, and which receive gets which message.
#include <gtest/gtest.h>
#include <signal.h>

#include <barrier>
#include <numeric>
#include <random>
#include <thread>

#include "ctran/bootstrap/local_store.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Ints = std::vector<int32_t>;

Collective message(CollectiveKind kind, int peer, Ints& data, int tag = 0) {
  Collective c;
  c.kind = kind;
  c.type = DataType::Int32;
  c.root = peer;
  c.tag = tag;
  c.count = data.size();
  c.input = reinterpret_cast<const std::byte*>(data.data());
  c.output = reinterpret_cast<std::byte*>(data.data());
  return c;
}

Collective sending(int peer, Ints& data, int tag = 0) {
  return message(CollectiveKind::Send, peer, data, tag);
}

Collective receiving(int peer, Ints& data, int tag = 0, int* source = nullptr) {
  Collective c = message(CollectiveKind::Recv, peer, data, tag);
  c.source = source;
  return c;
}

/// What rank `rank` sends as its message `number`.
Ints contents(int rank, int number, size_t count) {
  Ints data(count);
  std::iota(data.begin(), data.end(), rank * 1'000'000 + number * 1000);
  return data;
}

void send(Communicator& communicator, int number, size_t count, int tag = 0, int to = 0) {
  Ints data = contents(communicator.rank(), number, count);
  communicator.run(sending(to, data, tag));
}

/// In shared memory, between hosts, and both.
class Receive : public ::testing::TestWithParam<int> {
 protected:
  /// With `together` no rank leaves before all have done their part, and have talked to one
  /// another.
  static void run(int size, const std::function<void(Communicator&)>& body, bool together = true) {
    const auto whole = [&](Communicator& communicator) {
      body(communicator);
      if (!together) return;
      Ints from(communicator.size()), to(communicator.size());
      Collective all = message(CollectiveKind::AllToAll, 0, to);
      all.input = reinterpret_cast<const std::byte*>(from.data());
      all.count = 1;
      communicator.run(all);
    };
    runRanks(size, whole, GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(RanksPerHost, Receive, ::testing::Values(0, 1, 2));

TEST_P(Receive, FromAnyRankSaysWhoItWas) {
  for (const size_t count : {size_t{0}, size_t{3}, size_t{300'000}}) {
    for (const bool posted : {false, true}) {
      run(4, [&](Communicator& communicator) {
        if (communicator.rank() != 0) return send(communicator, 0, count);
        std::vector<bool> heard(4);
        for (int i = 1; i < 4; ++i) {
          int source = -7;
          Ints data(count, -1);
          const Collective c = receiving(kAnyRank, data, 0, &source);
          if (posted) {
            communicator.post(c)->wait();
          } else {
            communicator.run(c);
          }
          ASSERT_TRUE(source > 0 && source < 4) << source;
          EXPECT_FALSE(heard[source]);
          heard[source] = true;
          EXPECT_EQ(data, contents(source, 0, count));
        }
      });
    }
  }
}

TEST_P(Receive, FromAnyRankTakesNothingOfAnotherTag) {
  run(3, [](Communicator& communicator) {
    if (communicator.rank() != 0) {
      send(communicator, 7, 10'000, 7);
      return send(communicator, 3, 10, 3);
    }
    for (int i = 0; i < 2; ++i) {
      int source = -1;
      Ints data(10);
      communicator.run(receiving(kAnyRank, data, 3, &source));
      EXPECT_EQ(data, contents(source, 3, 10));
    }
    for (int source = 1; source < 3; ++source) {
      Ints data(10'000);
      communicator.run(receiving(source, data, 7));
      EXPECT_EQ(data, contents(source, 7, 10'000));
    }
  });
}

TEST_P(Receive, MessagesGoToTheOldestReceiveThatTakesThem) {
  for (const size_t count : {size_t{5}, size_t{100'000}}) {
    run(3, [&](Communicator& communicator) {
      constexpr int kMessages = 6;
      if (communicator.rank() == 1) {
        for (int i = 0; i < kMessages; ++i) send(communicator, i, count);
      }
      if (communicator.rank() != 0) return;
      // From rank 1 and from any rank, mixed; rank 2 sends nothing.
      const int from[kMessages] = {1, 1, kAnyRank, kAnyRank, 1, kAnyRank};
      std::vector<Ints> data(kMessages, Ints(count));
      std::vector<int> sources(kMessages, -7);
      std::vector<std::shared_ptr<Work>> works;
      for (int i = 0; i < kMessages; ++i) {
        works.push_back(communicator.post(receiving(from[i], data[i], 0, &sources[i])));
      }
      for (int i = kMessages - 1; i >= 0; --i) works[i]->wait();
      for (int i = 0; i < kMessages; ++i) {
        EXPECT_EQ(data[i], contents(1, i, count)) << i;
        EXPECT_EQ(sources[i], 1);
      }
    });
  }
}

TEST_P(Receive, OfOneTagDoesNotWaitForAnother) {
  for (const int source : {1, kAnyRank}) {
    for (const int other : {1, kAnyRank}) {
      run(2, [&](Communicator& communicator) {
        Ints late(4), soon(4), answer(1);
        if (communicator.rank() == 1) {
          send(communicator, 1, 4, 1);
          communicator.run(receiving(0, answer));
          return send(communicator, 2, 4, 2);
        }
        const auto work = communicator.post(receiving(source, late, 2));
        communicator.run(receiving(other, soon, 1));
        EXPECT_EQ(soon, contents(1, 1, 4));
        EXPECT_FALSE(work->done());
        communicator.run(sending(1, answer));
        work->wait();
        EXPECT_EQ(late, contents(1, 2, 4));
      });
    }
  }
}

TEST_P(Receive, FromAnyRankLosesNothing) {
  constexpr int kRanks = 4, kMessages = 60;
  const auto sizeOf = [](int rank, int number) {
    std::mt19937 random(static_cast<uint32_t>(rank * 1000 + number));
    return size_t{1} << random() % 15;
  };
  run(kRanks, [&](Communicator& communicator) {
    const int self = communicator.rank();
    if (self != 0) {
      for (int i = 0; i < kMessages; ++i) {
        Ints size{static_cast<int32_t>(sizeOf(self, i))};
        communicator.run(sending(0, size, 1));
        send(communicator, i, sizeOf(self, i), 2);
      }
      return;
    }
    std::vector<int> heard(kRanks);
    for (int i = 0; i < (kRanks - 1) * kMessages; ++i) {
      Ints size(1);
      int source = -1;
      communicator.run(receiving(kAnyRank, size, 1, &source));
      ASSERT_EQ(size[0], static_cast<int32_t>(sizeOf(source, heard[source])));
      Ints data(size[0]);
      communicator.run(receiving(source, data, 2));
      ASSERT_EQ(data, contents(source, heard[source]++, data.size()));
    }
  });
}

TEST_P(Receive, FromAnyRankIncludesOneself) {
  run(2, [](Communicator& communicator) {
    Ints sent = contents(communicator.rank(), 5, 9), got(9);
    int source = -1;
    const auto work = communicator.post(receiving(kAnyRank, got, 4, &source));
    communicator.run(sending(communicator.rank(), sent, 4));
    work->wait();
    EXPECT_EQ(source, communicator.rank());
    EXPECT_EQ(got, sent);
  });
}

TEST_P(Receive, FromAnyRankEndsAtItsDeadline) {
  run(
      3,
      [](Communicator& communicator) {
        Ints data(4);
        if (communicator.rank() != 0) {  // until the communicator breaks
          errorOf([&] { communicator.run(receiving(0, data)); });
          return;
        }
        const Error error = errorOf(
            [&] { communicator.run(receiving(kAnyRank, data, 8), std::chrono::milliseconds(30)); });
        EXPECT_EQ(error.kind(), ErrorKind::Timeout);
        EXPECT_EQ(error.ranks(), (std::vector<int>{1, 2}));
        EXPECT_NE(std::string(error.what()).find("from any rank, tag 8"), std::string::npos)
            << error.what();
        EXPECT_NE(std::string(error.what()).find("no rank has sent it"), std::string::npos)
            << error.what();
      },
      false);
}

TEST_P(Receive, FromAnyRankEndsWithAnAbort) {
  run(
      2,
      [](Communicator& communicator) {
        Ints data(4);
        if (communicator.rank() == 1) {
          communicator.run(receiving(0, data));
          communicator.abort("enough");
          return;
        }
        const auto work = communicator.post(receiving(kAnyRank, data, 1));
        communicator.run(sending(1, data));
        const Error error = errorOf([&] { work->wait(); });
        EXPECT_EQ(error.kind(), ErrorKind::Aborted);
        EXPECT_EQ(error.ranks(), (std::vector<int>{1}));
      },
      false);
}

TEST_P(Receive, FromAnyRankComparesTypeAndSize) {
  run(
      2,
      [](Communicator& communicator) {
        Ints data(4);
        if (communicator.rank() == 1) {
          Ints more(5);
          errorOf([&] {
            communicator.run(sending(0, more));
            communicator.run(receiving(0, data, 9));
          });
          return;
        }
        const Error error = errorOf([&] { communicator.run(receiving(kAnyRank, data)); });
        EXPECT_EQ(error.kind(), ErrorKind::Mismatch);
        EXPECT_EQ(error.ranks(), (std::vector<int>{0, 1}));
        EXPECT_NE(std::string(error.what()).find("5 elements"), std::string::npos) << error.what();
      },
      false);
}

TEST(ReceiveFromAnyRank, GoesOnUntilAllOthersHaveLeft) {
  const auto store = std::make_shared<MemoryStore>();
  std::barrier left(3);
  runThreads(3, [&](int rank) {
    const auto communicator = Communicator::create(optionsFor(rank, 3, store));
    if (rank == 1) communicator->finalize();
    left.arrive_and_wait();
    Ints data = contents(2, 0, 6), got(6);
    if (rank == 0) {
      int source = -1;
      communicator->run(receiving(kAnyRank, got, 0, &source));
      EXPECT_EQ(source, 2);
      EXPECT_EQ(got, data);
    } else if (rank == 2) {
      communicator->run(sending(0, data));
      communicator->finalize();
    }
    left.arrive_and_wait();
    if (rank != 0) return;
    const Error error = errorOf([&] { communicator->run(receiving(kAnyRank, got)); });
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost);
  });
}

TEST(ReceiveFromAnyRank, EndsWithTheDeathOfARank) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  const TemporaryDirectory directory;
  Shared<std::atomic<bool>> waits;
  ForkedRanks ranks(3, [&](int rank) {
    const auto communicator = Communicator::create(
        optionsFor(rank, 3, std::make_shared<DirectoryStore>(directory.path())));
    Ints data(4);
    if (rank == 0) {
      const auto work = communicator->post(receiving(kAnyRank, data));
      waits->store(true);
      const Error error = errorOf([&] { work->wait(); });
      EXPECT_EQ(error.kind(), ErrorKind::PeerLost);
      EXPECT_EQ(error.ranks(), (std::vector<int>{1}));
    } else {
      errorOf([&] { communicator->run(receiving(0, data)); });
    }
  });
  awaitFlag(*waits);
  ranks.kill(1, SIGKILL);
  ranks.expectSuccess({1});
}

}  // namespace
}  // namespace ctran::testing
