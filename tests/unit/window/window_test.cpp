// One-sided memory: what is put is there when its signal is; bounds; signals; what breaks.
#include "ctran/window/window.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "ctran/bootstrap/local_store.h"
#include "ctran/memory/shared_allocation.h"
#include "tests/unit/support/network.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

/// Memory of a rank, of either kind.
struct Memory {
  Memory(bool shared, size_t bytes) {
    if (shared) {
      allocation = SharedAllocation::allocate(bytes);
      span = {allocation->data(), bytes};
    } else {
      own.resize(bytes);
      span = own;
    }
  }
  std::shared_ptr<SharedAllocation> allocation;
  std::vector<std::byte> own;
  std::span<std::byte> span;
};

/// Which ranks' memory can be mapped.
enum class Kind { Unified, Separate, Mixed };

/// How many ranks, and where.
struct World {
  int size;
  int ranksPerHost = 0;  ///< 0: all on one host
};

class Windows : public ::testing::TestWithParam<std::tuple<Kind, World>> {
 protected:
  bool isShared(int rank) const {
    const Kind kind = std::get<0>(GetParam());
    return kind == Kind::Unified || (kind == Kind::Mixed && rank % 2 == 0);
  }
  World world() const { return std::get<1>(GetParam()); }
  int size() const { return world().size; }
  bool onOneHost(int a, int b) const {
    return world().ranksPerHost == 0 || a / world().ranksPerHost == b / world().ranksPerHost;
  }

  void onRanks(const std::function<void(Communicator&)>& body) {
    runRanks(size(), body, world().ranksPerHost);
  }
  void run(size_t bytes, const std::function<void(Window&, std::span<std::byte>)>& body) {
    onRanks([&](Communicator& communicator) {
      Memory memory(isShared(communicator.rank()), bytes);
      const auto window = Window::create(communicator, memory.span, {.signalWords = 4});
      body(*window, memory.span);
      window->close();
    });
  }
};

std::byte valueAt(int origin, int target, size_t i, int round = 0) {
  return static_cast<std::byte>(17 * origin + 5 * target + 3 * round + i % 251);
}

std::vector<std::byte> data(int origin, int target, size_t bytes, int round = 0) {
  std::vector<std::byte> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = valueAt(origin, target, i, round);
  return all;
}

/// Rank `root` goes on when all others have their windows: it may break its own now.
void awaitOthers(Window& window, int root) {
  if (window.rank() != root) window.signal(root);
  for (int r = 0; window.rank() == root && r < window.size(); ++r) {
    if (r != root) Window::finish(window.waitSignal(r));
  }
}

TEST_P(Windows, SayWhatEveryRankExposes) {
  onRanks([&](Communicator& communicator) {
    Memory memory(isShared(communicator.rank()), 100 + communicator.rank());
    const auto window = Window::create(communicator, memory.span, {.signalWords = 3});
    for (int r = 0; r < size(); ++r) {
      EXPECT_EQ(window->bytes(r), 100u + r);
      EXPECT_EQ(window->signalWords(r), 3u);
      const bool mapped = isShared(r) && onOneHost(r, communicator.rank());
      const bool unified = mapped || r == communicator.rank();
      EXPECT_EQ(window->access(r), unified ? WindowAccess::Unified : WindowAccess::Separate);
      EXPECT_EQ(window->mapped(r) != nullptr, unified);
    }
    window->close();
  });
}

TEST_P(Windows, PutIsThereWhenItsSignalIs) {
  // Every rank writes its stripe at every other rank, more than a channel holds, several times.
  constexpr size_t kStripe = 300'001;
  run(kStripe * size(), [&](Window& window, std::span<std::byte> memory) {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<std::byte>> sources;
      for (int target = 0; target < size(); ++target) {
        sources.push_back(data(window.rank(), target, kStripe, round));
        window.put(target, kStripe * window.rank(), sources.back());
        window.signal(target);
      }
      for (int origin = 0; origin < size(); ++origin) {
        Window::finish(window.waitSignal(origin));
        const auto expected = data(origin, window.rank(), kStripe, round);
        EXPECT_EQ(0, std::memcmp(memory.data() + kStripe * origin, expected.data(), kStripe))
            << "from rank " << origin << " in round " << round;
      }
      // Nobody overwrites what another one still reads.
      for (int target = 0; target < size(); ++target) window.signal(target);
      for (int origin = 0; origin < size(); ++origin) Window::finish(window.waitSignal(origin));
    }
  });
}

TEST_P(Windows, GetReadsWhatIsThere) {
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{kSanitizer ? 300'000 : 3'000'000}}) {
    run(bytes, [&](Window& window, std::span<std::byte> memory) {
      const auto own = data(window.rank(), 0, bytes);
      std::copy(own.begin(), own.end(), memory.begin());
      for (int target = 0; target < size(); ++target) window.signal(target);
      for (int origin = 0; origin < size(); ++origin) Window::finish(window.waitSignal(origin));
      for (int target = 0; target < size(); ++target) {
        std::vector<std::byte> result(bytes);
        Window::finish(window.get(target, 0, result));
        EXPECT_EQ(result, data(target, 0, bytes));
        std::vector<std::byte> last(1);
        Window::finish(window.get(target, bytes - 1, last));
        EXPECT_EQ(last[0], valueAt(target, 0, bytes - 1));
      }
    });
  }
}

TEST_P(Windows, GetAfterPutSeesIt) {
  run(64 * size(), [&](Window& window, std::span<std::byte>) {
    for (int target = 0; target < size(); ++target) {
      const auto source = data(window.rank(), target, 64);
      window.put(target, 64 * window.rank(), source);
      std::vector<std::byte> result(64);
      Window::finish(window.get(target, 64 * window.rank(), result));
      EXPECT_EQ(result, source);
    }
  });
}

TEST_P(Windows, FlushedPutsAreThere) {
  run(1000 * size(), [&](Window& window, std::span<std::byte> memory) {
    std::vector<std::vector<std::byte>> sources;
    for (int target = 0; target < size(); ++target) {
      sources.push_back(data(window.rank(), target, 1000));
      window.put(target, 1000 * window.rank(), sources.back());
    }
    for (int target = 0; target < size(); ++target) Window::finish(window.flush(target));
    for (int target = 0; target < size(); ++target) window.signal(target);
    for (int origin = 0; origin < size(); ++origin) {
      Window::finish(window.waitSignal(origin));
      const auto expected = data(origin, window.rank(), 1000);
      EXPECT_EQ(0, std::memcmp(memory.data() + 1000 * origin, expected.data(), 1000));
    }
  });
}

TEST_P(Windows, WordsAreSetAndComparedWith) {
  run(8, [&](Window& window, std::span<std::byte>) {
    const int next = (window.rank() + 1) % size();
    window.setWord(next, 0, 7);
    Window::finish(window.waitWord(0, Comparison::Equal, 7));
    Window::finish(window.waitWord(0, Comparison::GreaterEqual, 7));
    Window::finish(window.waitWord(0, Comparison::LessEqual, 7));
    Window::finish(window.waitWord(0, Comparison::NotEqual, 8));
    Window::finish(window.waitWord(0, Comparison::Less, 8));
    Window::finish(window.waitWord(0, Comparison::Greater, 6));
    // A token goes round; whoever has it passes it on.
    for (uint64_t lap = 1; lap <= 20; ++lap) {
      if (window.rank() == 0) window.setWord(1 % size(), 3, lap);
      Window::finish(window.waitWord(3, Comparison::Equal, lap));
      if (window.rank() != 0) window.setWord((window.rank() + 1) % size(), 3, lap);
    }
  });
}

TEST_P(Windows, PostedWaitsEndByThemselves) {
  run(8, [&](Window& window, std::span<std::byte>) {
    std::vector<Window::WorkPtr> works;
    for (int i = 0; i < 3; ++i) {
      for (int origin = 0; origin < size(); ++origin) works.push_back(window.waitSignal(origin));
    }
    for (int i = 0; i < 3; ++i) {
      for (int target = 0; target < size(); ++target) window.signal(target);
    }
    for (const auto& work : works) Window::finish(work);
  });
}

TEST_P(Windows, RefuseWhatIsOutside) {
  run(100, [&](Window& window, std::span<std::byte>) {
    std::vector<std::byte> ten(10);
    const auto rejected = [](const std::function<void()>& call) {
      const Error error = errorOf(call);
      EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument) << error.what();
    };
    const int other = (window.rank() + 1) % size();
    rejected([&] { window.put(other, 91, ten); });
    rejected([&] { window.put(other, SIZE_MAX - 4, ten); });
    rejected([&] { window.get(other, 101, std::span(ten).subspan(0, 0)); });
    rejected([&] { window.put(size(), 0, ten); });
    rejected([&] { window.put(other, 0, std::span(static_cast<std::byte*>(nullptr), 4)); });
    rejected([&] { window.get(other, 0, std::span(static_cast<std::byte*>(nullptr), 4)); });
    rejected([&] { window.waitWord(0, static_cast<Comparison>(77), 1); });
    rejected([&] { window.signal(-1); });
    rejected([&] { window.setWord(other, 4, 1); });
    rejected([&] { window.waitWord(4, Comparison::Equal, 1); });
    rejected([&] { window.waitSignal(size()); });
    // Nothing has happened.
    Window::finish(window.put(other, 90, ten));
  });
}

TEST_P(Windows, WaitsAreBoundedAndSayForWhat) {
  if (size() == 1) GTEST_SKIP() << "nobody else could signal";
  onRanks([&](Communicator& communicator) {
    Memory memory(isShared(communicator.rank()), 8);
    const auto window = Window::create(communicator, memory.span, {});
    awaitOthers(*window, 0);
    if (communicator.rank() == 0) {
      const Error error =
          errorOf([&] { Window::finish(window->waitSignal(1, std::chrono::milliseconds(50))); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
      EXPECT_EQ(error.ranks(), std::vector{1});
    } else {
      const Error error = errorOf([&] { Window::finish(window->waitSignal(0)); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    }
    EXPECT_EQ(errorOf([&] { window->signal(0); }).kind(), ErrorKind::Timeout);
  });
}

TEST_P(Windows, EndWithTheirCommunicator) {
  if (size() == 1) GTEST_SKIP() << "nobody else waits";
  onRanks([&](Communicator& communicator) {
    Memory memory(isShared(communicator.rank()), 8);
    const auto window = Window::create(communicator, memory.span, {});
    awaitOthers(*window, 0);
    if (communicator.rank() == 0) {
      communicator.abort("enough");
    } else {
      const Error error = errorOf([&] { Window::finish(window->waitSignal(0)); });
      EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
    }
  });
}

TEST_P(Windows, AfterCloseAreNoMore) {
  onRanks([&](Communicator& communicator) {
    Memory memory(isShared(communicator.rank()), 8);
    const auto window = Window::create(communicator, memory.span, {});
    window->close();
    window->close();
    EXPECT_EQ(errorOf([&] { window->signal(0); }).kind(), ErrorKind::InvalidArgument);
    communicator.run({});  // the communicator goes on
  });
}

TEST_P(Windows, ThatAreDroppedLeaveTheCommunicatorAlone) {
  onRanks([&](Communicator& communicator) {
    {
      Memory memory(isShared(communicator.rank()), 8);
      const auto window = Window::create(communicator, memory.span, {});
      communicator.run({});
    }
    communicator.run({});
  });
}

std::string nameOfCase(const ::testing::TestParamInfo<std::tuple<Kind, World>>& info) {
  static constexpr const char* kNames[] = {"Unified", "Separate", "Mixed"};
  const auto& [kind, world] = info.param;
  return kNames[static_cast<int>(kind)] + std::to_string(world.size) +
         (world.ranksPerHost == 0 ? "" : "By" + std::to_string(world.ranksPerHost));
}

INSTANTIATE_TEST_SUITE_P(
    Of, Windows,
    ::testing::Combine(::testing::Values(Kind::Unified, Kind::Separate, Kind::Mixed),
                       ::testing::Values(World{1}, World{2}, World{4}, World{2, 1}, World{3, 2},
                                         World{4, 2})),
    nameOfCase);

/// Options of one of two ranks, on one host or on two.
CommunicatorOptions oneOfTwo(const TemporaryDirectory& directory, int rank, bool onTwoHosts,
                             const std::string& name) {
  auto options = optionsFor(rank, 2, std::make_shared<DirectoryStore>(directory.path()), name);
  if (onTwoHosts) options.hints["ctran::host"] = "host" + std::to_string(rank);
  return options;
}

TEST(Window, OfDeadRankNamesIt) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  const TemporaryDirectory directory;
  for (const bool onTwoHosts : {false, true}) {
    for (const bool shared : {true, false}) {
      for (const bool puts : {true, false}) {
        ForkedRanks ranks(2, [&](int rank) {
          const std::string name = std::to_string(4 * onTwoHosts + 2 * shared + puts);
          const auto communicator =
              Communicator::create(oneOfTwo(directory, rank, onTwoHosts, name));
          Memory memory(shared, 100'000);
          const auto window = Window::create(*communicator, memory.span, {});
          awaitOthers(*window, 1);
          if (rank == 1) ::raise(SIGKILL);
          const Error error = errorOf([&] {
            const std::vector<std::byte> source(100'000);
            while (puts) Window::finish(window->put(1, 0, source));
            Window::finish(window->waitSignal(1));
          });
          EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
          EXPECT_EQ(error.ranks(), std::vector{1});
        });
        ranks.expectSuccess({1});
      }
    }
  }
}

/// A process that is stopped serves nobody.
TEST(Window, OfStoppedRankTimesOut) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  const TemporaryDirectory directory;
  for (const bool onTwoHosts : {false, true}) {
    const Shared<std::atomic<bool>> stopped, ended;
    ForkedRanks ranks(2, [&](int rank) {
      const auto communicator = Communicator::create(
          oneOfTwo(directory, rank, onTwoHosts, onTwoHosts ? "two hosts" : "one host"));
      Memory memory(false, 100'000);
      const auto window = Window::create(*communicator, memory.span, {});
      awaitOthers(*window, 1);
      if (rank == 1) ::raise(SIGSTOP);
      awaitFlag(*stopped);
      std::vector<std::byte> result(100'000);
      const Error error = errorOf(
          [&] { Window::finish(window->get(1, 0, result, std::chrono::milliseconds(100))); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
      EXPECT_EQ(error.ranks(), std::vector{1}) << error.what();
      *ended = true;
    });
    awaitStop(ranks.pid(1));
    *stopped = true;
    awaitFlag(*ended);
    ranks.kill(1, SIGKILL);
    ranks.expectSuccess({1});
  }
}

TEST(Window, ThatIsDroppedEndsTheWaitsOfOthers) {
  for (const int ranksPerHost : {0, 1, 2}) {
    runRanks(
        3,
        [&](Communicator& communicator) {
          Memory memory(false, 8);
          auto window = Window::create(communicator, memory.span, {});
          awaitOthers(*window, 1);
          if (communicator.rank() == 1) return window.reset();
          const Error error = errorOf([&] { Window::finish(window->waitSignal(1)); });
          EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
          EXPECT_EQ(error.ranks(), std::vector{1}) << error.what();
        },
        ranksPerHost);
  }
}

TEST(Window, WhoseWaitIsInterruptedBreaks) {
  struct Interrupt : WaitHooks {
    void interrupted() override { throw std::runtime_error("interrupted"); }
  };
  for (const int ranksPerHost : {0, 1}) {
    runRanks(
        2,
        [](Communicator& communicator) {
          Memory memory(false, 8);
          auto window = Window::create(communicator, memory.span, {});
          awaitOthers(*window, 1);
          Interrupt hooks;
          if (communicator.rank() == 0) {
            EXPECT_THROW(Window::finish(window->waitSignal(1), &hooks), std::runtime_error);
          }
          // The signal that was waited for is not missing for whoever waits next.
          const Error error =
              errorOf([&] { Window::finish(window->waitSignal(1 - communicator.rank())); });
          EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
          EXPECT_EQ(error.ranks(), std::vector{0}) << error.what();
          communicator.run({});  // it is the window that is broken
        },
        ranksPerHost);
  }
}

/// More than the network buffers, of small and of large ones, before anybody waits.
TEST(Window, TakesManyPutsAtOnce) {
  for (const size_t bytes : {size_t{64}, size_t{20'000}, size_t{300'000}}) {
    const size_t count = bytes < 100'000 ? 3000 : 10;
    runRanks(
        2,
        [&](Communicator& communicator) {
          Memory memory(false, bytes * count);
          const auto window = Window::create(communicator, memory.span, {});
          const int other = 1 - communicator.rank();
          const auto source = data(communicator.rank(), other, bytes * count);
          for (size_t i = 0; i < count; ++i) {
            window->put(other, i * bytes, std::span(source).subspan(i * bytes, bytes));
          }
          window->signal(other);
          Window::finish(window->waitSignal(other));
          const auto expected = data(other, communicator.rank(), bytes * count);
          EXPECT_EQ(0, std::memcmp(memory.span.data(), expected.data(), expected.size()));
          window->close();
        },
        1);
  }
}

#if !defined(__SANITIZE_THREAD__)

TEST(Window, SpansNetworks) {
  const NetworkOfHosts network(2);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  const TemporaryDirectory directory;
  constexpr size_t kStripe = 200'000;
  ForkedRanks ranks(4, [&](int rank) {
    network.enter(rank / 2);
    const auto communicator = Communicator::create(
        optionsFor(rank, 4, std::make_shared<DirectoryStore>(directory.path())));
    Memory memory(true, 4 * kStripe);
    const auto window = Window::create(*communicator, memory.span, {});
    std::vector<std::vector<std::byte>> sources;
    for (int target = 0; target < 4; ++target) {
      EXPECT_EQ(window->access(target),
                target / 2 == rank / 2 ? WindowAccess::Unified : WindowAccess::Separate);
      sources.push_back(data(rank, target, kStripe));
      window->put(target, kStripe * rank, sources.back());
      window->signal(target);
    }
    for (int origin = 0; origin < 4; ++origin) {
      Window::finish(window->waitSignal(origin));
      const auto expected = data(origin, rank, kStripe);
      EXPECT_EQ(0, std::memcmp(memory.span.data() + kStripe * origin, expected.data(), kStripe));
    }
    window->close();
    communicator->finalize();
  });
  ranks.expectSuccess();
}

TEST(Window, OfHostThatDisappearsNamesIt) {
  const NetworkOfHosts network(2);
  if (!network.whyNot().empty()) GTEST_SKIP() << network.whyNot();
  const TemporaryDirectory directory;
  const Shared<std::atomic<int>> arrived;
  ForkedRanks ranks(2, [&](int rank) {
    network.enter(rank);
    ::setenv("CTRAN_TCP_LOST_MILLIS", "1000", 1);
    const auto communicator = Communicator::create(
        optionsFor(rank, 2, std::make_shared<DirectoryStore>(directory.path())));
    Memory memory(true, 8);
    const auto window = Window::create(*communicator, memory.span, {});
    ++*arrived;
    const Error error = errorOf([&] { Window::finish(window->waitSignal(1 - rank)); });
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
    EXPECT_EQ(error.ranks(), std::vector{1 - rank}) << error.what();
  });
  while (*arrived < 2) ::sched_yield();
  awaitSleep(ranks.pid(0));
  network.cut(1);
  ranks.expectSuccess();
}

#endif

TEST(SharedAllocation, IsFoundByAnyRangeInIt) {
  const auto allocation = SharedAllocation::allocate(10'000);
  EXPECT_EQ(allocation->size(), 12'288u);
  EXPECT_EQ(SharedAllocation::find(allocation->data() + 5, 100), allocation);
  EXPECT_EQ(SharedAllocation::find(allocation->data(), 12'289), nullptr);
  EXPECT_EQ(SharedAllocation::find(&allocation, 1), nullptr);
}

TEST(SharedAllocation, IsForgottenWithItsLastHolder) {
  auto allocation = SharedAllocation::allocate(100);
  const std::byte* data = allocation->data();
  allocation.reset();
  EXPECT_EQ(SharedAllocation::find(data, 1), nullptr);
}

}  // namespace
}  // namespace ctran::testing
