// Ranks that are killed, stopped, or forked. Processes, so nothing of this is for the race
// detector.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "ctran/base/clock.h"
#include "ctran/bootstrap/local_store.h"
#include "tests/unit/support/descriptors.h"
#include "tests/unit/support/ranks.h"

#if !defined(__SANITIZE_THREAD__)

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

constexpr int kRanks = 4, kVictim = 2;

struct State : Barrier {
  std::atomic<int64_t> killedAt;
  std::array<std::atomic<int64_t>, 8> noticedAfter;
};

void report(const char* what, const State& state) {
  int64_t latest = 0;
  for (const auto& nanos : state.noticedAfter) latest = std::max(latest, nanos.load());
  std::printf("[          ] %s: noticed by the last survivor after %.3f ms\n", what,
              static_cast<double>(latest) * 1e-6);
  ::testing::Test::RecordProperty("noticed_after_microseconds", static_cast<int>(latest / 1000));
}

/// A call in which everybody needs the victim, or will at the next.
Call callOf(Kind kind, size_t count) {
  const bool toRoot = kind == Kind::Gather || kind == Kind::Reduce;
  return {kind, count, kRanks, toRoot ? 0 : kVictim};
}

/// Calls until the loss is told, and what is told from then on.
void expectLoss(Communicator& communicator, State& state, const std::function<void()>& call) {
  const Error error = errorOf([&] {
    while (true) call();
  });
  state.noticedAfter[communicator.rank()] = nowNanos() - state.killedAt;
  EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
  EXPECT_EQ(error.ranks(), std::vector<int>{kVictim}) << error.what();
  EXPECT_FALSE(error.hint().empty());
  const Error later = errorOf([&] { communicator.run({}); });
  EXPECT_EQ(later.kind(), ErrorKind::PeerLost);
  EXPECT_EQ(later.ranks(), std::vector<int>{kVictim});
  EXPECT_EQ(errorOf([&] { communicator.post({}); }).ranks(), std::vector<int>{kVictim});
}

class Killed : public ::testing::TestWithParam<std::tuple<Kind, size_t, bool>> {};

/// Killed while the others sleep in the call.
TEST_P(Killed, RankIsNamedByThoseWhoWaitForIt) {
  const auto [kind, count, posted] = GetParam();
  const TemporaryDirectory directory;
  Shared<State> state;
  ForkedRanks ranks(kRanks, [&, kind = kind, count = count, posted = posted](int rank) {
    const auto communicator = join(directory, rank, kRanks);
    state->arrive(kRanks + 1);
    if (rank == kVictim) {
      while (true) ::pause();
    }
    const Call call = callOf(kind, count);
    expectLoss(*communicator, *state, [&] {
      if (posted) {
        communicator->post(call.collective)->wait();
      } else {
        communicator->run(call.collective);
      }
    });
  });
  state->arrive(kRanks + 1);
  for (int r = 0; r < kRanks; ++r) awaitSleep(ranks.pid(r));
  state->killedAt = nowNanos();
  ranks.kill(kVictim, SIGKILL);
  ranks.expectSuccess({kVictim});
  report("blocked", *state);
}

/// Killed between two calls of its own, while the others are anywhere.
TEST_P(Killed, RankIsNamedByThoseWhoCallNext) {
  const auto [kind, count, posted] = GetParam();
  const TemporaryDirectory directory;
  Shared<State> state;
  ForkedRanks ranks(kRanks, [&, kind = kind, count = count, posted = posted](int rank) {
    const auto communicator = join(directory, rank, kRanks);
    const bool message = kind == Kind::Send || kind == Kind::Recv;
    const Call call = callOf(kind, count), before = callOf(message ? Kind::Barrier : kind, count);
    if (rank == kVictim) {
      for (int i = 0; i < 3; ++i) communicator->run(before.collective);
      state->killedAt = nowNanos();
      ::raise(SIGKILL);
    }
    int calls = 0;
    expectLoss(*communicator, *state, [&] {
      const Collective& next = calls++ < 3 ? before.collective : call.collective;
      if (posted) {
        const auto first = communicator->post(next);
        communicator->post(calls++ < 3 ? before.collective : call.collective)->wait();
        first->wait();
      } else {
        communicator->run(next);
      }
    });
  });
  ranks.expectSuccess({kVictim});
  report("at the next call", *state);
}

std::string nameOfParameter(const ::testing::TestParamInfo<Killed::ParamType>& info) {
  std::string name(nameOf(std::get<0>(info.param)));
  std::erase(name, '_');
  return name + (std::get<1>(info.param) > 8 ? "Large" : "Small") +
         (std::get<2>(info.param) ? "Posted" : "Run");
}

INSTANTIATE_TEST_SUITE_P(
    In, Killed,
    ::testing::Combine(::testing::Values(Kind::Barrier, Kind::Broadcast, Kind::AllReduce,
                                         Kind::Reduce, Kind::AllGather, Kind::AllGatherV,
                                         Kind::ReduceScatter, Kind::ReduceScatterV, Kind::Scatter,
                                         Kind::Gather, Kind::AllToAll, Kind::AllToAllV),
                       ::testing::Values(8, 400'000), ::testing::Bool()),
    nameOfParameter);

// A send ends when the message is in the channel: only a large one needs the receiver.
INSTANTIATE_TEST_SUITE_P(InSend, Killed,
                         ::testing::Combine(::testing::Values(Kind::Send),
                                            ::testing::Values(5'000'000), ::testing::Bool()),
                         nameOfParameter);
INSTANTIATE_TEST_SUITE_P(InRecv, Killed,
                         ::testing::Combine(::testing::Values(Kind::Recv), ::testing::Values(8),
                                            ::testing::Bool()),
                         nameOfParameter);

TEST(Killed, WhileAChildThatItForkedLivesOn) {
  const TemporaryDirectory directory;
  Shared<State> state;
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  ForkedRanks ranks(kRanks, [&](int rank) {
    ::close(fds[1]);
    const auto communicator = join(directory, rank, kRanks);
    if (rank == kVictim && ::fork() == 0) {
      char nothing;
      while (::read(fds[0], &nothing, 1) < 0) continue;  // until the test closes the other end
      ::_exit(0);
    }
    state->arrive(kRanks + 1);
    if (rank == kVictim) {
      while (true) ::pause();
    }
    expectLoss(*communicator, *state, [&] { communicator->run({}); });
  });
  ::close(fds[0]);
  state->arrive(kRanks + 1);
  for (int r = 0; r < kRanks; ++r) awaitSleep(ranks.pid(r));
  state->killedAt = nowNanos();
  ranks.kill(kVictim, SIGKILL);
  ranks.expectSuccess({kVictim});
  EXPECT_GT(state->noticedAfter[0], 0);
  ::close(fds[1]);
  report("with a child that lives on", *state);
}

TEST(Killed, InTheMiddleOfLargeTransfers) {
  const TemporaryDirectory directory;
  Shared<State> state;
  ForkedRanks ranks(kRanks, [&](int rank) {
    const auto communicator = join(directory, rank, kRanks);
    const Call call = callOf(Kind::AllReduce, 3'000'000);
    state->arrive(kRanks + 1);
    if (rank == kVictim) {
      while (true) communicator->run(call.collective);
    }
    expectLoss(*communicator, *state, [&] { communicator->run(call.collective); });
  });
  state->arrive(kRanks + 1);
  state->killedAt = nowNanos();
  ranks.kill(kVictim, SIGKILL);
  ranks.expectSuccess({kVictim});
  report("in the middle", *state);
}

TEST(Killed, RanksOfOneProcessAreAllNamed) {
  const TemporaryDirectory directory;
  Shared<State> state;
  ForkedRanks ranks(2, [&](int process) {
    runThreads(2, [&](int thread) {
      const auto communicator = join(directory, 2 * process + thread, 4);
      communicator->run({});
      if (process == 1) {
        state->arrive(2);
        ::raise(SIGKILL);
      }
      const Error error = errorOf([&] { communicator->run({}); });
      EXPECT_EQ(error.kind(), ErrorKind::PeerLost);
      EXPECT_EQ(error.ranks(), (std::vector<int>{2, 3})) << error.what();
    });
  });
  ranks.expectSuccess({1});
}

TEST(Killed, SurvivorsMayGoOnInANewCommunicator) {
  const TemporaryDirectory directory;
  Shared<State> state;
  ForkedRanks ranks(kRanks, [&](int rank) {
    auto communicator = join(directory, rank, kRanks);
    communicator->run({});
    if (rank == kVictim) ::raise(SIGKILL);
    EXPECT_EQ(errorOf([&] {
                while (true) communicator->run({});
              }).kind(),
              ErrorKind::PeerLost);
    const auto smaller = join(directory, rank < kVictim ? rank : rank - 1, kRanks - 1);
    communicator.reset();
    for (int i = 0; i < 100; ++i) smaller->run({});
    smaller->finalize();
  });
  ranks.expectSuccess({kVictim});
}

TEST(Killed, WhileOthersCreateTheCommunicator) {
  for (const int victim : {0, 2}) {
    const TemporaryDirectory directory;
    ForkedRanks ranks(3, [&](int rank) {
      if (rank == victim) {
        // It is there, and dies before the last rank comes.
        std::thread([&] {
          DirectoryStore(directory.path()).get("ctran/test/leader", kGuard);
          if (rank == 2) awaitSleep(::getpid());
          ::raise(SIGKILL);
        }).detach();
      }
      if (rank == 1) {
        // The last: comes after the death, which closes the dead rank's end of this pipe.
        DirectoryStore(directory.path()).get("go", kGuard);
      }
      const auto error = errorOf([&] {
        auto options = optionsFor(rank, 3, std::make_shared<DirectoryStore>(directory.path()));
        options.timeout = std::chrono::seconds(2);
        Communicator::create(options);
      });
      EXPECT_TRUE(error.kind() == ErrorKind::PeerLost || error.kind() == ErrorKind::Timeout)
          << error.what();
      EXPECT_FALSE(error.ranks().empty());
    });
    siginfo_t info;
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(ranks.pid(victim)), &info, WEXITED | WNOWAIT), 0);
    DirectoryStore(directory.path()).set("go", "");
    ranks.expectSuccess({victim});
  }
}

class OutOfDescriptors : public ::testing::TestWithParam<bool> {};

TEST_P(OutOfDescriptors, RankThatCannotSplitIsNamedToThoseWhoWaitForIt) {
  const TemporaryDirectory directory;
  Shared<State> made;
  ForkedRanks ranks(3, [&](int rank) {
    const auto create = [&](const char* name) {
      auto options = optionsFor(rank, 3, std::make_shared<DirectoryStore>(directory.path()), name);
      if (GetParam()) options.hints["ctran::host"] = "host" + std::to_string(rank);
      return Communicator::create(options);
    };
    const auto communicator = create("first");
    communicator->run({});
    made->arrive(3);  // or who fails might tell those who have not heard the end of that
    {
      std::optional<NoDescriptors> none;
      if (rank == 1) none.emplace();
      const Error error = errorOf([&] { communicator->split(std::vector{0, 1, 2}, "child"); });
      EXPECT_EQ(error.kind(), ErrorKind::System) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
      const std::string what = error.what();
      EXPECT_NE(what.find("Too many open files"), std::string::npos) << what;
      EXPECT_EQ(what.find("ulimit"), what.rfind("ulimit")) << what;
    }
    create("second")->run({});
  });
  ranks.expectSuccess();
}

INSTANTIATE_TEST_SUITE_P(On, OutOfDescriptors, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "AHostPerRank" : "OneHost"; });

TEST(WithoutDescriptors, RankThatCannotLetACallerInIsNamedByAll) {
  const TemporaryDirectory directory;
  Shared<State> joined, failed;
  ForkedRanks ranks(kRanks, [&](int rank) {
    const auto create = [&](const char* name) {
      auto options =
          optionsFor(rank, kRanks, std::make_shared<DirectoryStore>(directory.path()), name);
      options.hints["ctran::host"] = "host" + std::to_string(rank / 2);
      return Communicator::create(options);
    };
    {
      const auto communicator = create("first");
      std::optional<NoDescriptors> none;
      if (rank == 1) none.emplace();
      joined->arrive(kRanks);
      const Error error = errorOf([&] {
        // Ranks 1 and 2 have had nothing to do with each other, and rank 1 has not now.
        const std::byte word{1};
        Collective send;
        send.kind = Kind::Send;
        send.root = 1;
        send.count = 1;
        send.input = &word;
        if (rank == 2) communicator->run(send);
        while (true) communicator->run({});
      });
      EXPECT_EQ(error.kind(), ErrorKind::System) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
      const std::string what = error.what();
      EXPECT_NE(what.find("accepting a connection: Too many open files"), std::string::npos)
          << what;
      failed->arrive(kRanks);
    }
    create("second")->run({});
  });
  ranks.expectSuccess();
}

TEST(Stopped, RankIsWaitedForAndGoesOn) {
  const TemporaryDirectory directory;
  Shared<State> state;
  ForkedRanks ranks(3, [&](int rank) {
    const auto communicator = join(directory, rank, 3);
    const Call call = callOf(Kind::AllReduce, 100'000);
    while (!state->go) {
      communicator->run(call.collective);
      if (rank == 0) ++state->arrived;
      // All ranks leave the loop after the same call.
      Collective decision;
      decision.kind = Kind::Broadcast;
      decision.type = DataType::UInt8;
      decision.count = 1;
      char stop = state->killedAt != 0;
      decision.output = reinterpret_cast<std::byte*>(&stop);
      communicator->run(decision);
      if (stop != 0) break;
    }
    communicator->finalize();
  });
  for (int round = 0; round < 5; ++round) {
    const int before = state->arrived;
    while (state->arrived < before + 20) ::sched_yield();
    ranks.kill(1, SIGSTOP);
    siginfo_t info;
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(ranks.pid(1)), &info, WSTOPPED | WNOWAIT), 0);
    awaitSleep(ranks.pid(0));
    ranks.kill(1, SIGCONT);
  }
  state->killedAt = 1;
  ranks.expectSuccess();
}

TEST(Forked, ChildGetsAClearErrorAndTheParentIsUnharmed) {
  if (kAddressSanitizer) GTEST_SKIP() << "a thread may hold the lock of its allocator at the fork";
  const TemporaryDirectory directory;
  ForkedRanks ranks(2, [&](int rank) {
    auto communicator = join(directory, rank, 2);
    Collective recv;  // pending while the child is made
    recv.kind = Kind::Recv;
    recv.root = 1 - rank;
    auto pending = communicator->post(recv);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto isFork = [](const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
        EXPECT_NE(std::string(error.what()).find("forked"), std::string::npos) << error.what();
        EXPECT_FALSE(error.hint().empty());
      };
      isFork(errorOf([&] { communicator->run({}); }));
      isFork(errorOf([&] { communicator->post({}); }));
      isFork(errorOf([&] { pending->wait(); }));
      isFork(errorOf([&] { communicator->abort(""); }));
      isFork(errorOf([&] { communicator->split(std::vector{0, 1}, "child"); }));
      communicator->finalize();
      // And has the engine for itself.
      runRanks(2, [](Communicator& own) { own.post({})->wait(); });
      pending.reset();
      communicator.reset();
      std::fflush(nullptr);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (int i = 0; i < 100; ++i) communicator->run({});
    Collective send = recv;
    send.kind = Kind::Send;
    communicator->run(send);
    pending->wait();
    communicator->finalize();
  });
  ranks.expectSuccess();
}

}  // namespace
}  // namespace ctran::testing

#endif
