// One-sided memory: what is put is there when its signal is; bounds; signals; what breaks.
#include "ctran/window/window.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "ctran/bootstrap/local_store.h"
#include "ctran/memory/shared_allocation.h"
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

class Windows : public ::testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  bool isShared(int rank) const {
    const Kind kind = std::get<0>(GetParam());
    return kind == Kind::Unified || (kind == Kind::Mixed && rank % 2 == 0);
  }
  int size() const { return std::get<1>(GetParam()); }

  void run(size_t bytes, const std::function<void(Window&, std::span<std::byte>)>& body) {
    runRanks(size(), [&](Communicator& communicator) {
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

TEST_P(Windows, SayWhatEveryRankExposes) {
  runRanks(size(), [&](Communicator& communicator) {
    Memory memory(isShared(communicator.rank()), 100 + communicator.rank());
    const auto window = Window::create(communicator, memory.span, {.signalWords = 3});
    for (int r = 0; r < size(); ++r) {
      EXPECT_EQ(window->bytes(r), 100u + r);
      EXPECT_EQ(window->signalWords(r), 3u);
      const bool unified = isShared(r) || r == communicator.rank();
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
  for (const size_t bytes : {size_t{1}, size_t{1000}, size_t{3'000'000}}) {
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
  runRanks(size(), [&](Communicator& communicator) {
    Memory memory(isShared(communicator.rank()), 8);
    const auto window = Window::create(communicator, memory.span, {});
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
  runRanks(size(), [&](Communicator& communicator) {
    Memory memory(isShared(communicator.rank()), 8);
    const auto window = Window::create(communicator, memory.span, {});
    if (communicator.rank() == 0) {
      communicator.abort("enough");
    } else {
      const Error error = errorOf([&] { Window::finish(window->waitSignal(0)); });
      EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
    }
  });
}

TEST_P(Windows, AfterCloseAreNoMore) {
  runRanks(size(), [&](Communicator& communicator) {
    Memory memory(isShared(communicator.rank()), 8);
    const auto window = Window::create(communicator, memory.span, {});
    window->close();
    window->close();
    EXPECT_EQ(errorOf([&] { window->signal(0); }).kind(), ErrorKind::InvalidArgument);
    communicator.run({});  // the communicator goes on
  });
}

TEST_P(Windows, ThatAreDroppedLeaveTheCommunicatorAlone) {
  runRanks(size(), [&](Communicator& communicator) {
    {
      Memory memory(isShared(communicator.rank()), 8);
      const auto window = Window::create(communicator, memory.span, {});
      communicator.run({});
    }
    communicator.run({});
  });
}

std::string nameOfCase(const ::testing::TestParamInfo<std::tuple<Kind, int>>& info) {
  static constexpr const char* kNames[] = {"Unified", "Separate", "Mixed"};
  return kNames[static_cast<int>(std::get<0>(info.param))] +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Of, Windows,
                         ::testing::Combine(::testing::Values(Kind::Unified, Kind::Separate,
                                                              Kind::Mixed),
                                            ::testing::Values(1, 2, 4)),
                         nameOfCase);

TEST(Window, OfDeadRankNamesIt) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  const TemporaryDirectory directory;
  for (const bool shared : {true, false}) {
    ForkedRanks ranks(2, [&](int rank) {
      const auto store = std::make_shared<DirectoryStore>(directory.path());
      const auto communicator =
          Communicator::create(optionsFor(rank, 2, store, shared ? "a" : "b"));
      Memory memory(shared, 64);
      const auto window = Window::create(*communicator, memory.span, {});
      if (rank == 1) ::raise(SIGKILL);
      const Error error = errorOf([&] { Window::finish(window->waitSignal(1)); });
      EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
      EXPECT_EQ(error.ranks(), std::vector{1});
    });
    ranks.expectSuccess({1});
  }
}

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
