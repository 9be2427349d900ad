// A rank that never comes, and a communicator that is aborted.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "ctran/bootstrap/local_store.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

constexpr std::chrono::milliseconds kShort{150};

bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

class Timeout : public ::testing::TestWithParam<std::tuple<Kind, size_t, bool>> {};

TEST_P(Timeout, NamesWhoIsMissingAndSaysWhatEachDidLast) {
  const auto [kind, count, posted] = GetParam();
  constexpr int kRanks = 4, kMissing = 2;
  std::barrier together(kRanks);
  runRanks(kRanks, [&, kind = kind, count = count, posted = posted](Communicator& communicator) {
    Call before(Kind::AllReduce, 77, kRanks, 0);
    communicator.run(before.collective);
    if (communicator.rank() == kMissing) {
      together.arrive_and_wait();
      // The communicator is broken; who comes late is told why.
      const Error error = errorOf([&] { communicator.run({}); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout);
      EXPECT_EQ(error.ranks(), std::vector<int>{kMissing});
      EXPECT_TRUE(says(error, "raised on rank 2")) << error.what();
      return;
    }
    // Where the missing rank is the root, everybody waits for it; otherwise the root does.
    const bool rootless = kind != Kind::Gather && kind != Kind::Reduce;
    const Call call(kind, count, kRanks, rootless ? kMissing : 0);
    // One rank's deadline passes, after the others have come.
    const bool isLast = communicator.rank() == 0;
    if (isLast) awaitBegun(communicator, {1, 3}, 2);
    const std::chrono::nanoseconds timeout = isLast ? kShort : std::chrono::nanoseconds(0);
    const Error error = errorOf([&] {
      if (posted) {
        communicator.post(call.collective, timeout)->wait();
      } else {
        communicator.run(call.collective, timeout);
      }
      communicator.run({}, timeout);
    });
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{kMissing}) << error.what();
    EXPECT_TRUE(says(error, "0.15 s")) << error.what();
    EXPECT_TRUE(says(error,
                     "rank 2: last collective all_reduce(sum, uint8, 77 elements), its "
                     "collective 1, completed"))
        << error.what();
    EXPECT_FALSE(error.hint().empty());
    together.arrive_and_wait();
  });
}

INSTANTIATE_TEST_SUITE_P(
    Of, Timeout,
    ::testing::Combine(::testing::Values(Kind::Barrier, Kind::Broadcast, Kind::AllReduce,
                                         Kind::Reduce, Kind::AllGather, Kind::AllGatherV,
                                         Kind::ReduceScatter, Kind::ReduceScatterV, Kind::Scatter,
                                         Kind::Gather, Kind::AllToAll, Kind::AllToAllV),
                       ::testing::Values(8, 400'000), ::testing::Bool()),
    [](const auto& info) {
      std::string name(nameOf(std::get<0>(info.param)));
      std::erase(name, '_');
      return name + (std::get<1>(info.param) > 8 ? "Large" : "Small") +
             (std::get<2>(info.param) ? "Posted" : "Run");
    });

TEST(Timeout, OfMessagesNamesThePeer) {
  for (const Kind kind : {Kind::Send, Kind::Recv}) {
    std::barrier together(2);
    runRanks(2, [&](Communicator& communicator) {
      if (communicator.rank() == 0) {
        // A send that fits the channel needs nobody.
        const Call call(kind, kind == Kind::Send ? 5'000'000 : 8, 2, 1);
        const Error error = errorOf([&] { communicator.run(call.collective, kShort); });
        EXPECT_EQ(error.kind(), ErrorKind::Timeout);
        EXPECT_EQ(error.ranks(), std::vector<int>{1});
        EXPECT_TRUE(says(error, kind == Kind::Send ? "has not received" : "has not sent"));
        EXPECT_TRUE(says(error, "rank 1: no operation yet")) << error.what();
      }
      together.arrive_and_wait();
    });
  }
}

TEST(Timeout, OfMessagesNamesThoseForWhomThePeerWaitsToo) {
  std::barrier together(4);
  runRanks(4, [&](Communicator& communicator) {
    // Rank 3 waits for rank 2, which waits for rank 1, which is in a collective without rank 0.
    const int rank = communicator.rank();
    const Call barrier(Kind::Barrier, 0, 4, 0), message(Kind::Recv, 8, 4, rank - 1);
    std::shared_ptr<Work> work;
    if (rank == 1) work = communicator.post(barrier.collective);
    if (rank == 2) work = communicator.post(message.collective);
    together.arrive_and_wait();
    if (rank == 3) {
      const Error error = errorOf([&] { communicator.run(message.collective, kShort); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout);
      EXPECT_EQ(error.ranks(), (std::vector<int>{2, 1, 0})) << error.what();
      EXPECT_TRUE(says(error, "and waits for rank 1, which waits for rank 0")) << error.what();
    }
    together.arrive_and_wait();
    if (work) {
      EXPECT_EQ(errorOf([&] { work->wait(); }).kind(), ErrorKind::Timeout);
    }
  });
}

TEST(Timeout, OfAnOperationThatNobodyWaitsForEndsIt) {
  std::barrier together(2);
  runRanks(2, [&](Communicator& communicator) {
    if (communicator.rank() == 0) {
      std::atomic<bool> ended{false};
      const auto first = communicator.post({});  // has the guard's timeout
      const auto work = communicator.post({}, kShort);
      work->onDone([&] { ended = true; });
      awaitFlag(ended);
      EXPECT_EQ(work->state(), WorkState::Failed);
      EXPECT_NE(work->error(), nullptr);
      EXPECT_EQ(errorOf([&] { first->wait(); }).kind(), ErrorKind::Timeout);
      EXPECT_EQ(errorOf([&] { first->waitFor(std::chrono::seconds(0)); }).kind(),
                ErrorKind::Timeout);
    }
    together.arrive_and_wait();
  });
}

TEST(Timeout, OfTheCommunicatorIsUsedWhereACallHasNone) {
  std::barrier together(2);
  runRanks(2, [&](Communicator& communicator) {
    if (communicator.rank() == 0) {
      communicator.setTimeout(kShort);
      EXPECT_EQ(communicator.timeout(), kShort);
      EXPECT_EQ(errorOf([&] { communicator.run({}); }).kind(), ErrorKind::Timeout);
    }
    together.arrive_and_wait();
  });
}

// --- Abort ---------------------------------------------------------------------------------------

TEST(Abort, EndsBlockedCallsAndWaitsOfAllRanks) {
  std::atomic<int> blocked{0};
  runRanks(4, [&](Communicator& communicator) {
    struct Telling : WaitHooks {
      std::atomic<int>* count;
      void beforeBlocking() override { ++*count; }
    } hooks;
    hooks.count = &blocked;
    const Call recv(Kind::Recv, 8, 1, (communicator.rank() + 1) % 4);  // nobody sends
    std::thread aborter;
    if (communicator.rank() == 3) {
      aborter = std::thread([&] {
        while (blocked < 4) std::this_thread::yield();
        communicator.abort("enough");
      });
    }
    const Error error = errorOf([&] {
      if (communicator.rank() % 2 == 0) {
        communicator.run(recv.collective, {}, &hooks);
      } else {
        communicator.post(recv.collective)->wait(&hooks);
      }
    });
    if (aborter.joinable()) aborter.join();
    EXPECT_EQ(error.kind(), ErrorKind::Aborted);
    EXPECT_EQ(error.ranks(), std::vector<int>{3});
    EXPECT_TRUE(says(error, "enough")) << error.what();
    EXPECT_TRUE(communicator.isAborted());
    EXPECT_EQ(errorOf([&] { communicator.run({}); }).kind(), ErrorKind::Aborted);
  });
}

TEST(Abort, EndsWhatNobodyWaitsFor) {
  std::atomic<int> ended{0};
  std::barrier together(2);
  runRanks(2, [&](Communicator& communicator) {
    const Call recv(Kind::Recv, 8, 1, 1 - communicator.rank());
    const auto work = communicator.post(recv.collective);
    work->onDone([&] { ++ended; });
    together.arrive_and_wait();
    if (communicator.rank() == 0) communicator.abort("");
    while (ended < 2) std::this_thread::yield();
    EXPECT_EQ(errorOf([&] { work->wait(); }).kind(), ErrorKind::Aborted);
  });
}

TEST(Abort, LeavesOtherCommunicatorsAlone) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(2, [&](int rank) {
    const auto one = Communicator::create(optionsFor(rank, 2, store));
    const auto two = Communicator::create(optionsFor(rank, 2, store));
    one->abort("");
    for (int i = 0; i < 100; ++i) two->run({});
    EXPECT_TRUE(one->isAborted());
    EXPECT_FALSE(two->isAborted());
  });
}

TEST(Left, RankThatOthersStillNeedIsNamed) {
  for (const Kind kind : {Kind::Barrier, Kind::Broadcast, Kind::Recv}) {
    for (const bool posted : {false, true}) {
      runRanks(3, [&](Communicator& communicator) {
        if (communicator.rank() == 1) return communicator.finalize();
        const Call call(kind, 8, 3, 1);
        const Error error = errorOf([&] {
          if (posted) {
            communicator.post(call.collective)->wait();
          } else {
            communicator.run(call.collective);
          }
        });
        EXPECT_EQ(error.kind(), ErrorKind::PeerLost);
        EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
        EXPECT_TRUE(says(error, "finalize")) << error.what();
      });
    }
  }
}

TEST(Left, RankThatSentBeforeItLeftIsNotMissed) {
  for (int i = 0; i < 200; ++i) {
    runRanks(2, [&](Communicator& communicator) {
      Call call(communicator.rank() == 0 ? Kind::Send : Kind::Recv, 8, 1, 1 - communicator.rank());
      if (communicator.rank() == 1) {
        for (int lag = 0; lag < i % 20; ++lag) std::this_thread::yield();
      }
      communicator.run(call.collective);
    });
  }
}

}  // namespace
}  // namespace ctran::testing
