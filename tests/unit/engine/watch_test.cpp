// What may be called by any thread at any time: for the race detector.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "ctran/base/replaceable.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/init_point.h"
#include "ctran/engine/progress.h"
#include "ctran/window/window.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

constexpr int kRounds = 20;

/// A thread that calls `look` again and again while this lives.
class Watcher {
 public:
  explicit Watcher(std::function<void()> look)
      : thread_([this, look = std::move(look)] {
          while (!over_) {
            look();
            ++looks_;
            std::this_thread::yield();
          }
        }) {}
  ~Watcher() {
    over_ = true;
    thread_.join();
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Returns when the thread has looked once more.
  void awaitLook() const {
    const int before = looks_;
    while (looks_ == before) std::this_thread::yield();
  }

 private:
  std::atomic<bool> over_{false};
  std::atomic<int> looks_{0};
  std::thread thread_;
};

/// So many ranks on each host; 0: all on this one.
class Watched : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Hosts, Watched, ::testing::Values(0, 1, 2));

void use(Communicator& communicator, const Watcher& watcher) {
  std::vector<int32_t> small(3, 1), large(50'000, 1);
  const std::vector<int> all{0, 1, 2};
  for (int i = 0; i < kRounds; ++i) {
    communicator.run(allReduce(small));
    const auto work = communicator.post(allReduce(large));
    communicator.run({});
    work->wait();
  }
  const auto part = communicator.split(all, "part");
  part->run({});
  std::vector<std::byte> memory(100);
  const auto window = Window::create(communicator, memory, {});
  window->signal((communicator.rank() + 1) % 3);
  Window::finish(window->waitSignal((communicator.rank() + 2) % 3));
  window->close();
  watcher.awaitLook();
  communicator.finalize();
  watcher.awaitLook();
}

TEST_P(Watched, CommunicatorIsAskedWhileItIsUsed) {
  runRanks(
      3,
      [](Communicator& communicator) {
        const Watcher watcher([&] { EXPECT_FALSE(communicator.isAborted()); });
        use(communicator, watcher);
      },
      GetParam());
}

TEST_P(Watched, CommunicatorIsAbortedWhileItIsUsed) {
  std::atomic<int> begun{0};
  for (int after = 0; after < 3 * kRounds; after += 7) {
    begun = 0;
    runRanks(
        3,
        [&](Communicator& communicator) {
          ++begun;
          const Watcher watcher([&] {
            if (begun >= 3 + after) communicator.abort("enough");
          });
          const Watcher another([&] { communicator.isAborted(); });
          // Belongs to the operation: a call that throws lets go of it before that has ended.
          const auto data = std::make_shared<std::vector<int32_t>>(50'000, 1);
          const Error error = errorOf([&] {
            while (true) {
              const auto work = communicator.post(allReduce(*data), {}, data);
              ++begun;
              communicator.run({});
              work->wait();
            }
          });
          EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
          EXPECT_TRUE(communicator.isAborted());
        },
        GetParam());
  }
}

TEST_P(Watched, WorkIsAskedByOtherThreads) {
  runRanks(
      3,
      [](Communicator& communicator) {
        for (int i = 0; i < kRounds; ++i) {
          std::vector<int32_t> data(i % 2 == 0 ? 3 : 50'000, 1);
          const auto work = communicator.post(allReduce(data));
          std::atomic<int> told{0};
          {
            const Watcher asks([&] {
              work->state();
              EXPECT_EQ(work->error(), nullptr);
            });
            const Watcher registers([&] {
              work->onStart([&] { ++told; });
              work->onDone([&] { ++told; });
            });
            const Watcher waits([&] { work->waitFor(std::chrono::microseconds(1)); });
            work->wait();
            registers.awaitLook();
          }
          EXPECT_EQ(work->state(), WorkState::Completed);
          EXPECT_GT(told, 0);
        }
      },
      GetParam());
}

/// As the ranks of runRanks, of communicators that change their members.
void changeMembers(int ranksPerHost, bool aborts) {
  std::vector<std::string> handles(3);
  std::atomic<int> ready{0};
  runThreads(3, [&](int rank) {
    InitPoint point(
        hostIdentity(ranksPerHost == 0 ? "" : "host" + std::to_string(rank / ranksPerHost)));
    handles[rank] = point.handle();
    ++ready;
    while (ready < 3) std::this_thread::yield();
    Replaceable<std::shared_ptr<Communicator>> current;
    const Watcher watcher([&] {
      current.look([&](const std::shared_ptr<Communicator>& communicator) {
        if (!communicator) return;
        communicator->isAborted();
        if (aborts) communicator->abort("changes");
      });
    });
    for (int i = 0; i < kRounds; ++i) {
      CommunicatorOptions options;
      options.timeout = kGuard;
      try {
        static_cast<void>(current.replace(point.form(handles, std::to_string(i), options)));
        (*current)->run({});
      } catch (const Error& error) {
        EXPECT_TRUE(aborts) << error.what();
      }
    }
    watcher.awaitLook();
  });
}

TEST_P(Watched, MembersAreAskedWhileTheyChange) { changeMembers(GetParam(), false); }

TEST_P(Watched, MembersAreAbortedWhileTheyChange) { changeMembers(GetParam(), true); }

TEST(EngineThread, DoesNotWaitForWhatGoes) {
  std::atomic<bool> registered{false};
  runRanks(2, [&](Communicator& communicator) {
    std::vector<int32_t> data(200'000, 1);
    if (communicator.rank() == 1) {  // the operation does not end before its callback is known
      awaitFlag(registered);
      communicator.run(allReduce(data));
      return;
    }
    const auto user = std::this_thread::get_id();
    std::thread::id here;
    Progress::dispose([&] { here = std::this_thread::get_id(); });
    EXPECT_EQ(here, user);

    std::atomic<std::thread::id> engine, elsewhere;
    std::atomic<bool> ended{false};
    communicator.post(allReduce(data))->onDone([&] {  // nobody waits for it
      engine = std::this_thread::get_id();
      Progress::dispose([&] {
        elsewhere = std::this_thread::get_id();
        ended = true;
      });
    });
    registered = true;
    awaitFlag(ended);
    EXPECT_NE(engine.load(), user);
    EXPECT_NE(elsewhere.load(), user);
    EXPECT_NE(elsewhere.load(), engine.load());
  });
}

}  // namespace
}  // namespace ctran::testing
