// What a posted operation promises.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "ctran/bootstrap/local_store.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

Collective barrier() { return {}; }

/// Two ranks: the first posts `collective(0)`, and `check`s before the second comes.
void whileAlone(const std::function<Collective(int)>& collective,
                const std::function<void(Communicator&, Work&)>& check) {
  std::barrier together(2);
  runRanks(2, [&](Communicator& communicator) {
    std::shared_ptr<Work> work;
    if (communicator.rank() == 0) {
      work = communicator.post(collective(0));
      check(communicator, *work);
    }
    together.arrive_and_wait();
    if (communicator.rank() == 1) communicator.run(collective(1));
    if (work) work->wait();
  });
}

TEST(Work, IsNotDoneBeforeTheOthersCame) {
  whileAlone([](int) { return barrier(); },
             [](Communicator&, Work& work) {
               EXPECT_FALSE(work.done());
               EXPECT_FALSE(work.waitFor(std::chrono::nanoseconds(0)));
               EXPECT_FALSE(work.waitFor(std::chrono::milliseconds(5)));
               EXPECT_EQ(work.error(), nullptr);
             });
}

TEST(Work, TellsWhenItStartsBeforeItTellsThatItHasEnded) {
  runRanks(2, [](Communicator& communicator) {
    std::vector<std::vector<int32_t>> data(6);
    std::vector<std::string> told(data.size());
    std::vector<std::shared_ptr<Work>> works;
    std::atomic<size_t> ended{0};
    for (size_t i = 0; i < data.size(); ++i) {
      data[i].assign(i % 2 == 0 ? 10 : 200'000, communicator.rank());
      works.push_back(communicator.post(allReduce(data[i])));
      works.back()->onStart([&told, i] { told[i] += "start "; });
      works.back()->onDone([&, i] {
        told[i] += "end";
        ++ended;
        ended.notify_all();
      });
    }
    for (size_t n = ended; n < data.size(); n = ended) ended.wait(n);
    for (size_t i = 0; i < data.size(); ++i) {
      works[i]->onStart([&told, i] { told[i] += ", again"; });  // at once
      EXPECT_EQ(told[i], "start end, again");
    }
  });
}

TEST(Work, MayBeWaitedForForever) {
  runRanks(2, [](Communicator& communicator) {
    const auto work = communicator.post(barrier(), std::chrono::nanoseconds::max());
    EXPECT_TRUE(work->waitFor(std::chrono::nanoseconds::max()));
    EXPECT_EQ(work->state(), WorkState::Completed);
    work->wait();  // again
    communicator.run(barrier(), std::chrono::nanoseconds::max());
  });
}

/// Small starts where it is posted, large on the engine's thread.
class NobodyWaits : public ::testing::TestWithParam<size_t> {};

TEST_P(NobodyWaits, AndTheOperationEndsAllTheSame) {
  constexpr int kCalls = 20;
  runRanks(3, [](Communicator& communicator) {
    std::vector<std::vector<int32_t>> data(kCalls);
    std::atomic<int> ended{0};
    std::vector<std::weak_ptr<int>> kept;
    for (auto& buffer : data) {
      buffer.assign(GetParam(), communicator.rank());
      auto keepAlive = std::make_shared<int>(0);
      kept.push_back(keepAlive);
      communicator.post(allReduce(buffer), {}, std::move(keepAlive))->onDone([&] {
        ++ended;
        ended.notify_all();
      });
    }
    for (int n = ended; n < kCalls; n = ended) ended.wait(n);
    for (const auto& buffer : data) {
      for (const int32_t value : buffer) ASSERT_EQ(value, 3);
    }
    communicator.finalize();
    for (const auto& weak : kept) {
      while (!weak.expired()) std::this_thread::yield();  // released on the engine's thread
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, NobodyWaits, ::testing::Values(1, 100'000));

TEST(Work, KeepsAliveWhatItWasGivenUntilItEnds) {
  std::weak_ptr<int> kept;
  whileAlone([](int) { return barrier(); },
             [&](Communicator& communicator, Work&) {
               auto keepAlive = std::make_shared<int>(0);
               kept = keepAlive;
               std::vector<int32_t> data(1);
               Collective recv;
               recv.kind = CollectiveKind::Recv;
               recv.type = DataType::Int32;
               recv.count = 1;
               recv.root = 0;
               recv.output = reinterpret_cast<std::byte*>(data.data());
               const auto work = communicator.post(recv, {}, std::move(keepAlive));
               EXPECT_FALSE(kept.expired());
               Collective send = recv;
               send.kind = CollectiveKind::Send;
               send.input = recv.output;
               communicator.run(send);
               work->wait();
               while (!kept.expired()) std::this_thread::yield();
             });
}

TEST(Work, CallsBackOnceAlsoWhenItHasEnded) {
  runRanks(2, [](Communicator& communicator) {
    const auto work = communicator.post(barrier());
    std::atomic<int> calls{0};
    work->onDone([&] { ++calls; });
    work->wait();
    work->onDone([&] { ++calls; });
    while (calls < 2) std::this_thread::yield();
    EXPECT_EQ(calls, 2);
  });
}

TEST(Work, CallbackMayPostTheNextOperation) {
  runRanks(2, [](Communicator& communicator) {
    std::vector<int32_t> first(1, 1), second(1, 10);
    std::atomic<bool> posted{false};
    std::shared_ptr<Work> next;
    communicator.post(allReduce(first))->onDone([&] {
      next = communicator.post(allReduce(second));
      posted = true;
    });
    awaitFlag(posted);  // this thread does not use the communicator meanwhile
    next->wait();
    EXPECT_EQ(first[0], 2);
    EXPECT_EQ(second[0], 20);
  });
}

TEST(Work, OutlivesTheHandleOfItsCommunicator) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(3, [&](int rank) {
    auto communicator = Communicator::create(optionsFor(rank, 3, store));
    std::vector<int32_t> data(50'000, rank);
    const auto large = communicator->post(allReduce(data));
    const auto small = communicator->post(barrier());
    communicator.reset();
    small->wait();
    EXPECT_TRUE(large->done());
    for (const int32_t value : data) ASSERT_EQ(value, 3);
  });
}

TEST(Finalize, WaitsForWhatWasPosted) {
  runRanks(3, [](Communicator& communicator) {
    std::vector<std::vector<int32_t>> data(50);
    std::vector<std::shared_ptr<Work>> works;
    for (size_t i = 0; i < data.size(); ++i) {
      data[i].assign(i % 3 == 0 ? 30'000 : 3, communicator.rank());
      works.push_back(communicator.post(allReduce(data[i])));
    }
    communicator.finalize();
    for (const auto& work : works) EXPECT_EQ(work->state(), WorkState::Completed);
    for (const auto& buffer : data) EXPECT_EQ(buffer.back(), 3);
    communicator.finalize();  // again
    EXPECT_EQ(errorOf([&] { communicator.run(barrier()); }).kind(), ErrorKind::InvalidArgument);
    communicator.abort("too late");  // hurts nobody
  });
}

TEST(Communicator, MayEndWithoutFinalizeWhileOperationsAreOnTheirWay) {
  const auto store = std::make_shared<MemoryStore>();
  std::atomic<int> ended{0};
  runThreads(3, [&](int rank) {
    auto data = std::make_shared<std::vector<int32_t>>(50'000, rank);
    const auto communicator = Communicator::create(optionsFor(rank, 3, store));
    const auto work = communicator->post(allReduce(*data), {}, data);
    work->onDone([&ended, weak = std::weak_ptr<std::vector<int32_t>>(data)] {
      const auto buffer = weak.lock();
      EXPECT_TRUE(buffer && buffer->front() == 3 && buffer->back() == 3);
      ++ended;
      ended.notify_all();
    });
  });
  for (int n = ended; n < 3; n = ended) ended.wait(n);
}

// --- What a waiting thread tells its host language -----------------------------------------------

struct Hooks : WaitHooks {
  int before = 0, after = 0, asked = 0;
  bool interrupt = false;
  void beforeBlocking() override { ++before; }
  void afterBlocking() override { ++after; }
  void interrupted() override {
    ++asked;
    if (interrupt) throw std::runtime_error("interrupted");
  }
};

TEST(Hooks, AreToldOfBlockingAndNotOfQuickCalls) {
  std::atomic<bool> blocked{false};
  runRanks(2, [&](Communicator& communicator) {
    struct Telling : Hooks {
      std::atomic<bool>* flag;
      void beforeBlocking() override {
        ++before;
        *flag = true;
      }
    } hooks;
    hooks.flag = &blocked;
    if (communicator.rank() == 0) {
      communicator.run(barrier(), {}, &hooks);
      EXPECT_EQ(hooks.before, 1);
      EXPECT_EQ(hooks.after, 1);
    } else {
      awaitFlag(blocked);  // it is told although nobody else moves
      communicator.run(barrier());
    }
  });
  runRanks(1, [](Communicator& communicator) {
    Hooks hooks;
    communicator.run(barrier(), {}, &hooks);
    communicator.post(barrier())->wait(&hooks);
    EXPECT_EQ(hooks.before + hooks.after + hooks.asked, 0);
  });
}

TEST(Hooks, InterruptEndsABlockingCallAndBreaksTheCommunicator) {
  runRanks(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) {
      const Error error = errorOf([&] {
        while (true) communicator.run(barrier(), {}, nullptr);
      });
      EXPECT_EQ(error.kind(), ErrorKind::Aborted);
      EXPECT_EQ(error.ranks(), std::vector<int>{0});
      return;
    }
    Collective recv;  // nobody sends
    recv.kind = CollectiveKind::Recv;
    recv.root = 1;
    Hooks hooks;
    hooks.interrupt = true;
    EXPECT_THROW(communicator.run(recv, {}, &hooks), std::runtime_error);
    EXPECT_EQ(hooks.before, hooks.after);
    EXPECT_TRUE(communicator.isAborted());
  });
}

TEST(Hooks, InterruptEndsAWaitAndTheOperationGoesOn) {
  whileAlone([](int) { return barrier(); },
             [](Communicator& communicator, Work& work) {
               Hooks hooks;
               hooks.interrupt = true;
               EXPECT_THROW(work.wait(&hooks), std::runtime_error);
               EXPECT_EQ(hooks.before, hooks.after);
               EXPECT_FALSE(work.done());
               EXPECT_FALSE(communicator.isAborted());
             });
}

TEST(Hooks, InterruptEndsACallThatQueuesBehindOthers) {
  runRanks(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) {
      EXPECT_EQ(errorOf([&] {
                  while (true) communicator.run(barrier());
                }).kind(),
                ErrorKind::Aborted);
      return;
    }
    Collective recv;
    recv.kind = CollectiveKind::Recv;
    recv.root = 1;
    const auto first = communicator.post(recv);
    Hooks hooks;
    hooks.interrupt = true;
    EXPECT_THROW(communicator.run(recv, {}, &hooks), std::runtime_error);
    EXPECT_EQ(first->state(), WorkState::Failed);
  });
}

/// A host language with one lock, which threads have but while they block.
struct Locking : Hooks {
  explicit Locking(std::mutex& language) : language(language) {}
  std::mutex& language;
  std::atomic<bool> blocked{false};
  void beforeBlocking() override {
    ++before;
    blocked = true;
    language.unlock();
  }
  void afterBlocking() override {
    language.lock();
    ++after;
  }
};

TEST(Hooks, InterruptEndsACallWhileAnotherThreadWaitsForAWork) {
  runRanks(2, [](Communicator& communicator) {
    if (communicator.rank() == 1) {
      EXPECT_EQ(errorOf([&] {
                  while (true) communicator.run(barrier());
                }).kind(),
                ErrorKind::Aborted);
      return;
    }
    Collective recv;  // nobody sends
    recv.kind = CollectiveKind::Recv;
    recv.root = 1;
    std::mutex language;
    const auto first = communicator.post(recv);
    first->onDone([&] { std::lock_guard lock(language); });  // as for what it held
    Locking waiting(language), interrupted(language);
    std::thread other([&] {
      std::lock_guard lock(language);
      EXPECT_EQ(errorOf([&] { first->wait(&waiting); }).kind(), ErrorKind::Aborted);
    });
    awaitFlag(waiting.blocked);
    interrupted.interrupt = true;
    {
      std::lock_guard lock(language);
      EXPECT_THROW(communicator.run(recv, {}, &interrupted), std::runtime_error);
    }
    other.join();
    EXPECT_EQ(interrupted.before, interrupted.after);
  });
}

TEST(Hooks, InterruptEndsAllThatACallHasPosted) {
  for (const int ranksPerHost : {0, 1}) {
    runRanks(
        2,
        [](Communicator& communicator) {
          const auto expectAborted = [&] {
            const Error error = errorOf([&] {
              while (true) communicator.run(barrier());
            });
            EXPECT_EQ(error.kind(), ErrorKind::Aborted);
            EXPECT_EQ(error.ranks(), std::vector<int>{0});
            EXPECT_NE(std::string(error.what()).find("rank 0 was interrupted in recv"),
                      std::string::npos)
                << error.what();
          };
          if (communicator.rank() == 1) return expectAborted();
          std::vector<std::shared_ptr<Work>> works;
          for (int i = 0; i < 3; ++i) {
            Collective recv;
            recv.kind = CollectiveKind::Recv;
            recv.root = i == 1 ? kAnyRank : 1;
            recv.tag = i;
            works.push_back(communicator.post(recv));
          }
          Hooks hooks;
          hooks.interrupt = true;
          EXPECT_THROW(Work::finish(works, &hooks), std::runtime_error);
          for (const auto& work : works) EXPECT_EQ(work->state(), WorkState::Failed);
          expectAborted();
        },
        ranksPerHost);
  }
}

// --- Wrong calls ---------------------------------------------------------------------------------

TEST(WrongCalls, LeaveTheCommunicatorAlone) {
  runRanks(2, [](Communicator& communicator) {
    std::vector<int32_t> data(4, 1);
    const auto rejected = [&](const std::function<void(Collective&)>& change) {
      Collective c = allReduce(data);
      change(c);
      EXPECT_EQ(errorOf([&] { communicator.run(c); }).kind(), ErrorKind::InvalidArgument);
      EXPECT_EQ(errorOf([&] { communicator.post(c); }).kind(), ErrorKind::InvalidArgument);
    };
    rejected([](Collective& c) { c.input = nullptr; });
    rejected([](Collective& c) { c.output = nullptr; });
    rejected([](Collective& c) { c.op.kind = ReduceKind::PremulSum; });
    rejected([](Collective& c) { c.type = DataType::Opaque4; });
    for (const auto kind : {CollectiveKind::AllReduce, CollectiveKind::Broadcast,
                            CollectiveKind::AllGather, CollectiveKind::Send}) {
      for (const size_t count : {SIZE_MAX, SIZE_MAX / 4 + 2, size_t{1} << 61}) {
        rejected([&](Collective& c) {
          c.kind = kind;
          c.root = 0;
          c.count = count;
        });
      }
      rejected([&](Collective& c) {
        c.kind = kind;
        c.root = 0;
        c.type = static_cast<DataType>(99);
      });
    }
    rejected([](Collective& c) {
      c.kind = CollectiveKind::AllToAllV;
      c.inputs = c.outputs = {{c.output, SIZE_MAX / 8}, {c.output, SIZE_MAX / 2}};
    });
    for (const auto kind :
         {CollectiveKind::Broadcast, CollectiveKind::Reduce, CollectiveKind::Scatter,
          CollectiveKind::Gather, CollectiveKind::Send, CollectiveKind::Recv}) {
      for (const int root : {-2, 2}) {
        rejected([&](Collective& c) {
          c.kind = kind;
          c.root = root;
        });
      }
    }
    for (const auto kind : {CollectiveKind::AllGather, CollectiveKind::AllGatherV}) {
      rejected([&](Collective& c) {
        c.kind = kind;
        c.outputs.resize(1);
      });
      rejected([&](Collective& c) {
        c.kind = kind;
        c.outputs.assign(2, {c.output, 3});
      });
      rejected([&](Collective& c) {
        c.kind = kind;
        c.outputs.assign(2, {nullptr, 4});
      });
    }
    rejected([](Collective& c) {
      c.kind = CollectiveKind::ReduceScatterV;
      c.inputs.resize(3);
    });
    EXPECT_EQ(errorOf([&] { communicator.run(barrier(), std::chrono::nanoseconds(-1)); }).kind(),
              ErrorKind::InvalidArgument);
    EXPECT_EQ(errorOf([&] { communicator.setTimeout(std::chrono::nanoseconds(0)); }).kind(),
              ErrorKind::InvalidArgument);
    const auto explain = [&](CollectiveKind kind, DataType type) {
      return errorOf([&] { communicator.explain(kind, 8, type); }).kind();
    };
    EXPECT_EQ(explain(static_cast<CollectiveKind>(99), DataType::Float32),
              ErrorKind::InvalidArgument);
    EXPECT_EQ(explain(CollectiveKind::AllReduce, static_cast<DataType>(99)),
              ErrorKind::InvalidArgument);
    for (const double seconds : {-1.0, std::nan("")}) {
      EXPECT_EQ(errorOf([&] {
                  communicator.tune({seconds, nullptr});
                }).kind(),
                ErrorKind::InvalidArgument);
    }
    EXPECT_FALSE(communicator.isAborted());
    communicator.run(allReduce(data));
    EXPECT_EQ(data[3], 2);
  });
}

TEST(WrongCalls, OfTwoThreadsAtOnceAreNamed) {
  std::barrier together(2);
  runRanks(2, [&](Communicator& communicator) {
    Collective recv;
    recv.kind = CollectiveKind::Recv;
    recv.root = 1 - communicator.rank();
    struct Telling : WaitHooks {
      std::atomic<bool> blocked{false};
      void beforeBlocking() override { blocked = true; }
    } hooks;
    std::thread other([&] {
      EXPECT_EQ(errorOf([&] { communicator.run(recv, {}, &hooks); }).kind(), ErrorKind::Aborted);
    });
    awaitFlag(hooks.blocked);
    const Error error = errorOf([&] { communicator.run(barrier()); });
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
    EXPECT_NE(std::string(error.what()).find("two threads"), std::string::npos) << error.what();
    together.arrive_and_wait();
    communicator.abort("");  // nobody can send what the other thread waits for
    other.join();
  });
}

TEST(Work, ACallbackThatThrowsBreaksTheCommunicatorByName) {
  runRanks(2, [](Communicator& communicator) {
    const bool throws = communicator.rank() == 0;
    std::vector<int32_t> data(10, 1);
    std::atomic<bool> others{false};
    const auto work = communicator.post(barrier());
    if (throws) {
      work->onDone([] { throw 42; });
      work->onDone([&others] { others = true; });
    }
    const Error error = errorOf([&] {
      work->wait();
      while (true) communicator.run(allReduce(data));
    });
    EXPECT_EQ(error.kind(), ErrorKind::System) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{0}) << error.what();
    EXPECT_EQ(others, throws);
  });
}

}  // namespace
}  // namespace ctran::testing
