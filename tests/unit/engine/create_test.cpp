// How communicators come and go.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <barrier>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "ctran/base/clock.h"
#include "ctran/bootstrap/hand_over.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/create.h"
#include "ctran/transport/shm/arena.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/strangers.h"

namespace ctran::testing {
namespace {

size_t entries(const char* directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

/// Names that look like ours, but for those of the tests.
size_t named(const char* directory) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    count += name.find("ctran") != std::string::npos && !name.starts_with("ctran-test-");
  }
  return count;
}

/// Threads of this process by whose they are: ctran-progress and ctran-watcher, which stay, or any.
struct Threads {
  size_t engine = 0;
  size_t others = 0;
};

Threads threadsNow() {
  Threads threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);  // empty: it ends just now
    ++(name.starts_with("ctran-") ? threads.engine : threads.others);
  }
  return threads;
}

bool isMapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

/// The end of a thread, or what the engine's thread still holds, may take a moment.
void awaitThat(const std::function<bool()>& condition, const char* what) {
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kGuard).count();
  while (!condition()) {
    ASSERT_LT(nowNanos(), giveUp) << what;
    std::this_thread::yield();
  }
}

/// A rank's view of a store: how often it asks for something.
class CountingStore final : public Store {
 public:
  explicit CountingStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override {
    ++calls;
    store_->set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    ++calls;
    return store_->get(key, timeout);
  }
  void remove(const std::string& key) override {
    ++calls;
    store_->remove(key);
  }

  int calls = 0;

 private:
  const std::shared_ptr<Store> store_;
};

TEST(Create, EachRankAsksTheStoreOnceHoweverManyThereAre) {
  constexpr int kSize = 12;
  for (const int perHost : {kSize, 3, 1}) {
    const auto store = std::make_shared<MemoryStore>();
    std::barrier together(kSize);
    runThreads(kSize, [&](int rank) {
      const auto counting = std::make_shared<CountingStore>(store);
      auto options = optionsFor(rank, kSize, counting);
      options.hints["ctran::host"] = "host" + std::to_string(rank / perHost);
      const auto communicator = Communicator::create(options);
      // The first rank sets its address, and takes it away when all have come.
      EXPECT_EQ(counting->calls, rank == 0 ? 2 : 1);
      const std::vector<int> group{rank / 2 * 2, rank / 2 * 2 + 1};
      expectWorks(*communicator->split(group, "pair"));
      expectWorks(*communicator);
      EXPECT_EQ(counting->calls, rank == 0 ? 2 : 1);
      together.arrive_and_wait();
      communicator->finalize();
    });
  }
}

/// Seventy ranks: six of them are below rank 1.
constexpr int kInTree = 70;

CommunicatorOptions optionsInTree(int rank, std::shared_ptr<Store> store) {
  auto options = optionsFor(rank, kInTree, std::move(store));
  options.hints["ctran::host"] = "host" + std::to_string(rank / 8);
  return options;
}

TEST(Create, MoreRanksThanOneCanHearMeetInATree) {
  const auto store = std::make_shared<MemoryStore>();
  std::barrier together(kInTree);
  runThreads(kInTree, [&](int rank) {
    const auto counting = std::make_shared<CountingStore>(store);
    const auto communicator = Communicator::create(optionsInTree(rank, counting));
    // Rank 1 sets its address, and takes it away; those below it read it, too. Who comes before it
    // looks again now and then.
    EXPECT_GE(counting->calls, rank == 0 ? 2 : rank == 1 ? 3 : rank < 64 ? 1 : 2);
    EXPECT_EQ(communicator->map().hosts(), (kInTree + 7) / 8);
    expectWorks(*communicator);
    std::vector<int> everyThird, host;
    for (int r = rank % 3; r < kInTree; r += 3) everyThird.push_back(r);
    for (int r = rank / 8 * 8; r < std::min(rank / 8 * 8 + 8, kInTree); ++r) host.push_back(r);
    expectWorks(*communicator->split(everyThird, "thirds"));
    const auto near = communicator->split(host, "hosts");
    EXPECT_FALSE(near->spansHosts());
    expectWorks(*near);
    std::vector<int> all(kInTree);
    std::iota(all.rbegin(), all.rend(), 0);
    const auto backwards = communicator->split(all, "backwards");
    EXPECT_EQ(backwards->rank(), kInTree - 1 - rank);
    expectWorks(*backwards);
    together.arrive_and_wait();
  });
}

TEST(Create, MissingRankOfATreeIsNamedOnAllRanks) {
  for (const int missing : {69, 1}) {
    const auto store = std::make_shared<MemoryStore>();
    runThreads(kInTree, [&](int rank) {
      if (rank == missing) return;
      auto options = optionsInTree(rank, store);
      options.timeout = 3 * kArrival;
      const Error error = errorOf([&] { Communicator::create(options); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{missing}) << rank << ": " << error.what();
    });
  }
}

TEST(Create, RejectsWhatMakesNoSense) {
  const auto reject = [](const std::function<void(CommunicatorOptions&)>& change) {
    auto options = optionsFor(0, 2, std::make_shared<MemoryStore>());
    change(options);
    EXPECT_EQ(errorOf([&] { Communicator::create(options); }).kind(), ErrorKind::InvalidArgument);
  };
  reject([](auto& options) { options.rank = 2; });
  reject([](auto& options) { options.hints = {{"ctran::colour", "red"}}; });
  reject([](auto& options) { options.rank = -1; });
  reject([](auto& options) { options.size = 0; });
  reject([](auto& options) { options.size = kMaxRanks + 1; });
  reject([](auto& options) { options.store = nullptr; });
  reject([](auto& options) { options.timeout = std::chrono::nanoseconds(0); });
}

TEST(Create, WorldOfOneNeedsNoStore) {
  const auto communicator = Communicator::create(optionsFor(0, 1, nullptr));
  EXPECT_EQ(communicator->size(), 1);
  EXPECT_EQ(communicator->rank(), 0);
  EXPECT_EQ(communicator->name(), "test");
  expectWorks(*communicator);
}

TEST(Create, CommunicatorsOfOneNameOneAfterAnotherAndAliveAtOnce) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(3, [&](int rank) {
    std::vector<std::shared_ptr<Communicator>> alive;
    for (int i = 0; i < 5; ++i) {
      const auto brief = Communicator::create(optionsFor(rank, 3, store));
      expectWorks(*brief);
      brief->finalize();
      alive.push_back(Communicator::create(optionsFor(rank, 3, store)));
    }
    for (const auto& communicator : alive) expectWorks(*communicator);
  });
}

TEST(Create, MissingRankIsNamedOnAllRanks) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(3, [&](int rank) {
    auto options = optionsFor(rank, 4, store);
    options.timeout = kArrival;
    const Error error = errorOf([&] { Communicator::create(options); });
    EXPECT_EQ(error.kind(), ErrorKind::Timeout);
    EXPECT_EQ(error.ranks(), std::vector<int>{3}) << error.what();
  });
  // Nothing of it is left in the way of the next.
  runThreads(4, [&](int rank) { expectWorks(*Communicator::create(optionsFor(rank, 4, store))); });
}

TEST(Create, MissingLeaderIsNamed) {
  auto options = optionsFor(1, 2, std::make_shared<MemoryStore>());
  options.timeout = std::chrono::milliseconds(20);
  const Error error = errorOf([&] { Communicator::create(options); });
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_EQ(error.ranks(), std::vector<int>{0});
}

TEST(Create, AddressOfAnEarlierRunIsWaitedOut) {
  const auto store = std::make_shared<MemoryStore>();
  store->set("ctran/test/leader", Leader().address().serialize());
  std::atomic<bool> reading{false};
  struct Watched : MemoryStore {
    Store* store;
    std::atomic<bool>* reading;
    std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
      auto value = store->get(key, timeout);
      *reading = true;
      return value;
    }
  };
  const auto watched = std::make_shared<Watched>();
  watched->store = store.get();
  watched->reading = &reading;
  runThreads(2, [&](int rank) {
    if (rank == 0) awaitFlag(reading);  // the other has read the stale one
    const std::shared_ptr<Store> own = rank == 0 ? store : watched;
    expectWorks(*Communicator::create(optionsFor(rank, 2, own)));
  });
  store->set("ctran/test/leader", Leader().address().serialize());
  auto options = optionsFor(1, 2, store);
  options.timeout = std::chrono::milliseconds(50);
  EXPECT_EQ(errorOf([&] { Communicator::create(options); }).kind(), ErrorKind::Timeout);
}

TEST(Create, AnotherUserAtTheAddressOfAnEarlierRunGetsNothing) {
  if (!canBecomeNobody()) GTEST_SKIP() << "needs root, to become another user";
  const auto store = std::make_shared<MemoryStore>();
  LeaderAddress stale;
  {
    const Leader leader;
    stale = leader.address();
  }
  const NameThief thief(stale.socketName.data());
  store->set("ctran/test/leader", stale.serialize());
  runThreads(2, [&](int rank) {
    if (rank == 0) awaitThat([&] { return thief.callers() > 0; }, "the other has called there");
    expectWorks(*Communicator::create(optionsFor(rank, 2, store)));
  });
  store->set("ctran/test/leader", stale.serialize());
  auto options = optionsFor(1, 2, store);
  options.timeout = std::chrono::milliseconds(50);
  const Error error = errorOf([&] { Communicator::create(options); });
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_NE(std::string(error.what()).find("another user"), std::string::npos) << error.what();
  EXPECT_EQ(thief.loot(), 0u);
}

/// The system allows a user who is not root about as many descriptors on their way as one process
/// may have open, and each of 64 ranks is given 65.
TEST(Create, AThousandDescriptorsAreEnoughForManyCommunicatorsOf64Ranks) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  constexpr int kSize = 64;
  constexpr int kCommunicators = 20;
  const TemporaryDirectory directory;
  ::chmod(directory.path().c_str(), 0777);
  ForkedRanks ranks(kSize, [&](int rank) {
    const rlimit limit{1024, 1024};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (canBecomeNobody()) becomeNobody();
    const auto store = std::make_shared<DirectoryStore>(directory.path());
    std::vector<std::shared_ptr<Communicator>> all;
    all.push_back(Communicator::create(optionsFor(rank, kSize, store)));
    std::vector<int> world(kSize);
    std::iota(world.begin(), world.end(), 0);
    while (all.size() < kCommunicators) all.push_back(all[0]->split(world, "another"));
    for (const auto& communicator : all) communicator->run({});
  });
  ranks.expectSuccess();
}

TEST(Split, MakesGroupsInTheOrderOfTheirLists) {
  runRanks(5, [](Communicator& communicator) {
    const int rank = communicator.rank();
    const std::vector<int> ranks = rank == 4       ? std::vector<int>{}
                                   : rank % 2 == 0 ? std::vector{2, 0}
                                                   : std::vector{1, 3};
    const auto child = communicator.split(ranks, "child");
    if (rank == 4) {
      EXPECT_EQ(child, nullptr);
    } else {
      EXPECT_EQ(child->size(), 2);
      EXPECT_EQ(child->rank(), rank == 2 || rank == 1 ? 0 : 1);
      EXPECT_EQ(child->name(), "child");
      EXPECT_EQ(child->timeout(), communicator.timeout());
      expectWorks(*child);
    }
    expectWorks(communicator);
    if (child) child->abort("");  // is no matter of the parent
    expectWorks(communicator);
    const auto alone = communicator.split(std::vector{rank}, "alone");
    expectWorks(*alone);
  });
}

TEST(Split, RejectsListsThatMakeNoSense) {
  runRanks(3, [](Communicator& communicator) {
    const int rank = communicator.rank();
    const auto reject = [&](const std::vector<int>& ranks, const std::string& told) {
      const Error error = errorOf([&] { communicator.split(ranks, "child"); });
      EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
      EXPECT_NE(std::string(error.what()).find(told), std::string::npos) << error.what();
    };
    reject({rank, 3}, "Invalid rank 3");
    reject({-1, rank}, "Invalid rank -1");
    reject({rank, rank}, "multiple times");
    reject({(rank + 1) % 3}, "not included");
    expectWorks(communicator);
    // Different lists: everybody whose list is not that of all its members is told.
    const std::vector<int> own = rank == 2 ? std::vector{0, 2, 1} : std::vector{0, 1, 2};
    EXPECT_EQ(errorOf([&] { communicator.split(own, "child"); }).kind(), ErrorKind::Mismatch);
    expectWorks(communicator);
  });
}

TEST(Communicator, LeavesNothingBehind) {
  const auto cycle = [] {
    const auto store = std::make_shared<MemoryStore>();
    runThreads(3, [&](int rank) {
      const auto communicator = Communicator::create(optionsFor(rank, 3, store));
      communicator->post({})->wait();
      const auto child = communicator->split(std::vector{0, 1, 2}, "child");
      child->run({});
      if (rank == 1) child->finalize();
      communicator->finalize();
    });
  };
  const size_t names = named("/dev/shm") + named("/tmp");
  cycle();  // starts the engine's threads
  awaitThat([] { return !isMapped("memfd:ctran"); }, "the first are unmapped");
  const size_t fds = entries("/proc/self/fd");
  // ThreadSanitizer has a thread of its own beside the main one.
  const auto oursAreLeft = [] { return threadsNow().others <= (kThreadSanitizer ? 2 : 1); };
  awaitThat(oursAreLeft, "the ranks' threads have ended");
  for (int i = 0; i < (kThreadSanitizer ? 30 : 200); ++i) cycle();
  awaitThat([] { return !isMapped("memfd:ctran"); }, "all are unmapped");
  awaitThat([&] { return oursAreLeft() && threadsNow().engine <= 2; }, "no thread is left");
  EXPECT_EQ(entries("/proc/self/fd"), fds);
  // Other tests may have theirs meanwhile.
  awaitThat([&] { return named("/dev/shm") + named("/tmp") <= names; }, "no name is left");
}

// --- Sleeping ------------------------------------------------------------------------------------

int64_t cpuNanosOfThread() {
  timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

int64_t cpuNanosOfProcess() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

TEST(Sleeping, BlockedRanksLeaveTheirCoreToOthers) {
  std::barrier together(3);
  int64_t used = 0;
  runRanks(3, [&](Communicator& communicator) {
    if (communicator.rank() == 1) communicator.post({});  // nobody waits: the engine's thread does
    std::shared_ptr<Work> first;
    together.arrive_and_wait();
    const int64_t before = cpuNanosOfProcess();
    if (communicator.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::seconds(1));  // the others wait for this rank
      communicator.run({});
      used = cpuNanosOfProcess() - before;
    } else if (communicator.rank() == 0) {
      const int64_t own = cpuNanosOfThread();
      communicator.run({});
      EXPECT_LT(cpuNanosOfThread() - own, 300'000'000);
    }
    together.arrive_and_wait();
  });
  EXPECT_LT(used, 600'000'000) << "of a second";  // a core each would be three
}

/// It is as far ahead as slots allow, and those that it waits for publish nothing in such a call
/// but that they have begun it.
TEST(Sleeping, RootOfSmallBroadcastsIsWokenByThoseWhoFollow) {
  std::atomic<pid_t> root{0};
  runRanks(2, [&](Communicator& communicator) {
    std::byte data{};
    Collective c;
    c.kind = CollectiveKind::Broadcast;
    c.type = DataType::UInt8;
    c.count = 1;
    c.output = &data;
    const auto& doorbell = communicator.core().board.control(0).doorbell;
    const uint32_t before = doorbell;
    if (communicator.rank() == c.root) {
      root = ::gettid();
    } else {
      awaitThat([&] { return root != 0; }, "the root has come");
      awaitSleep(root);
    }
    for (uint64_t i = 0; i < 2 * Arena::kSlots; ++i) communicator.run(c);
    if (communicator.rank() == c.root) {
      EXPECT_NE(doorbell, before);
    }
  });
}

}  // namespace
}  // namespace ctran::testing
