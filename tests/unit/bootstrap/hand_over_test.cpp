#include "ctran/bootstrap/hand_over.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "ctran/bootstrap/local_call.h"
#include "ctran/os/process.h"
#include "ctran/os/shared_memory.h"
#include "tests/unit/support/descriptors.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/strangers.h"

namespace ctran::testing {
namespace {

constexpr size_t kBytes = 8192;

Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::milliseconds(100); }

std::string nameOf(const LeaderAddress& address) {
  return {address.socketName.data(), ::strnlen(address.socketName.data(), 32)};
}

/// A leader of `size` ranks on a thread of its own, and what becomes of it.
class Leading {
 public:
  explicit Leading(int size, Deadline deadline = later())
      : thread_([this, size, deadline] {
          try {
            group_ = leader_.gather(size, createSharedMemory("test", kBytes), deadline);
          } catch (const Error& error) {
            error_ = error;
          }
        }) {}
  ~Leading() {
    if (thread_.joinable()) thread_.join();
  }

  const LeaderAddress& address() const { return leader_.address(); }

  const HostGroup& group() {
    thread_.join();
    if (!group_) throw *error_;
    return *group_;
  }
  Error error() {
    return errorOf([this] { group(); });
  }

 private:
  Leader leader_;
  std::optional<HostGroup> group_;
  std::optional<Error> error_;
  std::thread thread_;
};

void expectGroup(const HostGroup& group, int size, const SharedMapping& memory) {
  EXPECT_EQ(SharedMapping::map(group.memory, kBytes).get(), &memory);
  EXPECT_EQ(group.pids, std::vector<pid_t>(size, ::getpid()));
  EXPECT_EQ(group.processes, std::vector<uint64_t>(size, processToken()));
  ASSERT_EQ(group.brought.size(), static_cast<size_t>(size));
  for (const UniqueFd& fd : group.brought) EXPECT_TRUE(fd);
}

/// Joins with all ranks that are left; the leader has to be as good as new.
void expectSuccess(Leading& leading, int size, int firstRank = 1) {
  std::vector<std::optional<HostGroup>> groups(size);
  std::vector<std::thread> threads;
  for (int r = firstRank; r < size; ++r) {
    threads.emplace_back([&, r] { groups[r] = join(leading.address(), r, size, later()); });
  }
  for (std::thread& thread : threads) thread.join();
  const HostGroup& own = leading.group();
  const auto memory = SharedMapping::map(own.memory, kBytes);
  expectGroup(own, size, *memory);
  for (int r = firstRank; r < size; ++r) expectGroup(*groups[r], size, *memory);
}

TEST(HandOver, GivesAllRanksTheSameMemory) {
  for (const int size : {1, 2, 3, 64}) {
    Leading leading(size);
    expectSuccess(leading, size);
  }
}

TEST(HandOver, CallersWithoutTheKeyAreTurnedAway) {
  Leading leading(3);
  LeaderAddress wrong = leading.address();
  wrong.key[31] ^= std::byte{1};
  NotJoined reason;
  EXPECT_FALSE(join(wrong, 1, 3, later(), nullptr, &reason));
  EXPECT_TRUE(reason.somebodyListens);
  EXPECT_NE(reason.why.find("hung up"), std::string::npos) << reason.why;
  expectSuccess(leading, 3);
}

/// What a rank of this host says to `name`, and what has become of it.
NotJoined refusedBy(const std::string& name, const JobKey& key, const Interrupt& interrupt = {}) {
  LeaderAddress address;
  std::copy(name.begin(), name.end(), address.socketName.begin());
  address.key = key;
  const std::string host = hostIdentity();
  std::copy(host.begin(), host.end(), address.host.begin());
  NotJoined reason;
  EXPECT_FALSE(join(address, 1, 2, later(), interrupt, &reason));
  return reason;
}

TEST(HandOver, AnotherUserWhoTakesTheNameGetsNothing) {
  if (!canBecomeNobody()) GTEST_SKIP() << "needs root, to become another user";
  const std::string name = freshSocketName();
  const NameThief thief(name);
  const NotJoined reason = refusedBy(name, randomKey());
  EXPECT_TRUE(reason.somebodyListens);
  EXPECT_NE(reason.why.find("another user"), std::string::npos) << reason.why;
  while (thief.callers() == 0) std::this_thread::yield();
  EXPECT_EQ(thief.loot(), 0u);
}

TEST(HandOver, AnotherUserWhoCallsGetsNothing) {
  if (!canBecomeNobody()) GTEST_SKIP() << "needs root, to become another user";
  Leading leading(2);
  const LeaderAddress address = leading.address();
  ForkedRanks stranger(1, [&](int) {
    becomeNobody();
    const Socket socket = connectAbstract(nameOf(address), later());
    const Heard heard = hearAll(socket, later());
    EXPECT_EQ(heard.bytes.size() + heard.descriptors, 0u);
    EXPECT_FALSE(join(address, 1, 2, later()));  // though it has the key
  });
  stranger.expectSuccess();
  expectSuccess(leading, 2);
}

/// A process of the same user that listens at the name and has all of the protocol, but not the
/// key: neither does it learn it, nor is anything handed over.
TEST(HandOver, WhoListensWithoutTheKeyGetsNothing) {
  const JobKey key = randomKey();
  const std::string name = freshSocketName();
  const Socket listener = listenAbstract(name, 4);
  Heard heard;
  std::thread impostor([&] {
    const Socket socket = acceptWithin(listener, later());
    Challenge challenge;
    challenge.nonce = randomKey();
    sendAll(socket.fd(), std::as_bytes(std::span(&challenge, 1)), {}, later());
    Hello hello;
    receiveAll(socket.fd(), std::as_writable_bytes(std::span(&hello, 1)), 0, later());
    VerdictMessage verdict;
    verdict.proof = proofOf(randomKey(), challenge, hello, Verdict::Welcome);
    sendAll(socket.fd(), std::as_bytes(std::span(&verdict, 1)), {}, later());
    heard = hearAll(socket, later());
    const auto said = std::as_bytes(std::span(&hello, 1));
    heard.bytes.insert(heard.bytes.end(), said.begin(), said.end());
  });
  const NotJoined reason = refusedBy(name, key);
  impostor.join();
  EXPECT_NE(reason.why.find("could not prove"), std::string::npos) << reason.why;
  EXPECT_EQ(heard.bytes.size(), sizeof(Hello));
  EXPECT_EQ(heard.descriptors, 0u);
  EXPECT_FALSE(heard.contains(key));
}

/// One that says nothing is waited for, but Ctrl-C is heard.
TEST(HandOver, WhoListensAndSaysNothingCanBeLeft) {
  const std::string name = freshSocketName();
  const Socket listener = listenAbstract(name, 4);
  struct Interrupted {};
  EXPECT_THROW(refusedBy(name, randomKey(), [] { throw Interrupted(); }), Interrupted);
  const Heard heard = hearAll(acceptWithin(listener, later()), later());
  EXPECT_EQ(heard.bytes.size() + heard.descriptors, 0u);
}

TEST(HandOver, CallersThatSaySomethingElseAreTurnedAway) {
  Leading leading(3);
  for (const size_t bytes : {1, 55, 56, 4000}) {
    const Socket foreign = connectAbstract(nameOf(leading.address()), later());
    ASSERT_TRUE(foreign);
    sendAll(foreign.fd(), std::vector<std::byte>(bytes, std::byte{'x'}), {}, later());
    EXPECT_LE(hearAll(foreign, later()).bytes.size(), sizeof(Challenge));
  }
  expectSuccess(leading, 3);
}

TEST(HandOver, CallersThatSayNothingKeepNobodyOut) {
  Leading leading(5);
  std::vector<Socket> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(connectAbstract(nameOf(leading.address()), later()));
  }
  expectSuccess(leading, 5);
}

/// Strangers that call and hang up without a pause.
class Callers {
 public:
  explicit Callers(const LeaderAddress& address) {
    for (std::thread& thread : threads_) {
      thread = std::thread([this, name = nameOf(address)] {
        while (!ended_) {
          try {
            connectAbstract(name, Deadline{});
            ++calls_;
          } catch (const Error&) {  // so many wait already
          }
        }
      });
    }
  }
  ~Callers() { end(); }
  void end() {
    ended_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  int calls() const { return calls_; }

 private:
  std::atomic<bool> ended_{false};
  std::atomic<int> calls_{0};
  std::array<std::thread, 3> threads_;
};

/// Gathers two ranks, of which one does not come, while strangers call; ends them after many calls.
std::pair<Error, bool> besieged(Deadline deadline, const Interrupt& interrupt) {
  constexpr int kMany = 100'000;  // takes many times as long as the deadline
  Leader leader;
  Callers callers(leader.address());
  std::atomic<bool> ended{false};
  bool inTime = false;
  std::thread guard([&] {
    while (!ended && callers.calls() < kMany) std::this_thread::yield();
    inTime = ended;
    callers.end();
  });
  const Error error =
      errorOf([&] { leader.gather(2, createSharedMemory("test", kBytes), deadline, interrupt); });
  ended = true;
  guard.join();
  return {error, inTime};
}

TEST(HandOver, CallersWithoutAPauseHideNeitherDeadlineNorInterrupt) {
  const auto [late, inTime] = besieged(soon(), nullptr);
  EXPECT_EQ(late.kind(), ErrorKind::Timeout);
  EXPECT_EQ(late.ranks(), std::vector<int>{1});
  EXPECT_TRUE(inTime);
  const auto [interrupted, atOnce] =
      besieged(later(), [] { throw Error(ErrorKind::Aborted, "interrupted"); });
  EXPECT_EQ(interrupted.kind(), ErrorKind::Aborted);
  EXPECT_TRUE(atOnce);
}

TEST(HandOver, AnotherWorldSizeIsToldToBoth) {
  Leading leading(3);
  const Error error = errorOf([&] { join(leading.address(), 2, 4, later()); });
  EXPECT_EQ(error.kind(), ErrorKind::Mismatch);
  EXPECT_EQ(error.ranks(), (std::vector<int>{0, 2}));
  EXPECT_STREQ(leading.error().what(), error.what());
  EXPECT_NE(std::string(error.what()).find("rank 2 was started with world size 4, rank 0 with 3"),
            std::string::npos)
      << error.what();
}

TEST(HandOver, AnotherVersionIsToldToBoth) {
  Leading leading(2);
  // Of any version: the protocol, and something else.
  std::vector<std::byte> hello(24);
  hello[0] = std::byte{1};
  const LocalCall call = callLocal(nameOf(leading.address()), leading.address().key, later());
  const UniqueFd pidFd = openOwnPidFd();
  const int fds[] = {pidFd.get()};
  sendAll(call.socket.fd(), hello, fds, later());
  uint32_t answer[2];  // the leader's protocol and its verdict
  receiveAll(call.socket.fd(), std::as_writable_bytes(std::span(answer)), 0, later());
  EXPECT_NE(answer[0], 1u);
  EXPECT_NE(answer[1], 0u);
  const Error error = leading.error();
  EXPECT_EQ(error.kind(), ErrorKind::System);
  EXPECT_NE(std::string(error.what()).find("different versions"), std::string::npos);
}

TEST(HandOver, RanksThatDoNotExistOrAreTakenAreTurnedAway) {
  Leading leading(3);
  for (const int rank : {0, -1, 3}) {
    EXPECT_EQ(errorOf([&] { join(leading.address(), rank, 3, later()); }).kind(),
              ErrorKind::InvalidArgument);
  }
  // Two that say they are rank 1: one of them is.
  std::atomic<int> joined{0}, refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      try {
        if (join(leading.address(), 1, 3, later())) ++joined;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument) << error.what();
        ++refused;
      }
    });
  }
  while (refused < 1) std::this_thread::yield();
  EXPECT_TRUE(join(leading.address(), 2, 3, later()));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(joined, 1);
  EXPECT_EQ(leading.group().pids.size(), 3u);
}

TEST(HandOver, MissingRanksAreNamedOnAllRanks) {
  const Deadline deadline = std::chrono::steady_clock::now() + kArrival;
  Leading leading(5, deadline);
  std::vector<Error> errors;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (const int r : {1, 3}) {
    threads.emplace_back([&, r] {
      const Error error = errorOf([&] { join(leading.address(), r, 5, deadline); });
      std::lock_guard lock(mutex);
      errors.push_back(error);
    });
  }
  for (std::thread& thread : threads) thread.join();
  errors.push_back(leading.error());
  for (const Error& error : errors) {
    EXPECT_EQ(error.kind(), ErrorKind::Timeout);
    EXPECT_EQ(error.ranks(), (std::vector<int>{2, 4})) << error.what();
    EXPECT_FALSE(error.hint().empty());
  }
}

/// As far as the leader can see: a rank that joins, and hangs up. Of two that say they are that
/// rank one is refused; then the other has joined.
void joinAndHangUp(const LeaderAddress& address, int rank, int size) {
  struct Died {};
  std::atomic<bool> refused{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      try {
        join(address, rank, size, later(), [&] {
          if (refused) throw Died();
        });
        ADD_FAILURE() << "it can only be refused, or wait";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument) << error.what();
        refused = true;
      } catch (const Died&) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HandOver, RankThatDiesBeforeAllAreThereIsNamed) {
  Leading leading(4);
  joinAndHangUp(leading.address(), 2, 4);
  const Error error = leading.error();
  EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
  EXPECT_EQ(error.ranks(), std::vector<int>{2});
}

TEST(HandOver, RankThatDiesIsNamedToThoseWhoHaveJoined) {
  Leading leading(4);
  // Two that say they are rank 1: when one of them is refused, the other has joined.
  std::atomic<int> refused{0}, told{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      const Error error = errorOf([&] { join(leading.address(), 1, 4, later()); });
      if (error.kind() == ErrorKind::InvalidArgument) {
        ++refused;
        return;
      }
      EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
      ++told;
    });
  }
  while (refused < 1) std::this_thread::yield();
  joinAndHangUp(leading.address(), 2, 4);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(leading.error().ranks(), std::vector<int>{2});
}

TEST(HandOver, LeaderThatGivesUpIsNamed) {
  std::optional<Leading> leading(std::in_place, 3, soon());
  const Error error = errorOf([&] { join(leading->address(), 1, 3, later()); });
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_EQ(error.ranks(), std::vector<int>{2});
  const LeaderAddress stale = leading->address();
  leading.reset();
  EXPECT_FALSE(join(stale, 1, 3, later()));  // nobody listens there any more
}

TEST(HandOver, LeaderThatNeverAnswersIsGivenUp) {
  const Leader leader;  // nobody calls gather
  const Error error = errorOf([&] { join(leader.address(), 1, 2, soon()); });
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_EQ(error.ranks(), std::vector<int>{0});
}

TEST(HandOver, LeaderOfAnotherHostThatListensNowhereIsNotFound) {
  const Leader leader;  // for its own host only
  NotJoined reason;
  EXPECT_FALSE(join(leader.address(), 1, 2, later(), nullptr, &reason, hostIdentity("elsewhere")));
  EXPECT_NE(reason.why.find("no address"), std::string::npos) << reason.why;
  EXPECT_FALSE(reason.somebodyListens);
}

TEST(HandOver, RanksOfSeveralHostsAreToldEachOthersPlaces) {
  constexpr int kSize = 5;
  const auto hostOf = [](int rank) { return hostIdentity("host" + std::to_string(rank / 2)); };
  Leader leader(Leader::Reach::AllHosts, hostOf(0));
  runThreads(kSize, [&](int rank) {
    const HostGroup group =
        rank == 0 ? leader.gather(kSize, createSharedMemory("test", kBytes), later())
                  : *join(leader.address(), rank, kSize, later(), nullptr, nullptr, hostOf(rank));
    ASSERT_NE(group.hosts, nullptr);
    EXPECT_FALSE(group.memory);
    EXPECT_EQ(group.hosts->key, leader.address().key);
    const Places& places = group.hosts->places;
    ASSERT_EQ(places.size(), kSize);
    for (int r = 0; r < kSize; ++r) {
      EXPECT_EQ(places.siteOf(r).host, Site::at(hostOf(r), {}).host);
      EXPECT_NE(places[r].port, 0);
      EXPECT_EQ(places.addressesOf(r)[0].port, places[r].port);
    }
    EXPECT_EQ(group.hosts->acceptor->addresses()[0].port, places[rank].port);
    EXPECT_EQ(group.hosts->neighbours.list(),
              rank < 4 ? (std::vector{rank / 2 * 2, rank / 2 * 2 + 1}) : std::vector{4});
    EXPECT_EQ(group.hosts->neighbours.port, places[rank / 2 * 2].port);
  });
}

TEST(HandOver, RankOfAnotherHostThatLeavesIsNamedAndStrangersAreNot) {
  Leader leader(Leader::Reach::AllHosts);
  const LeaderAddress address = leader.address();
  const std::vector<NetAddress> there{
      *std::find_if(address.addresses.rbegin(), address.addresses.rend(),
                    [](const NetAddress& a) { return a.family != 0; })};
  const TcpSocket stranger = beginConnect(there[0]);
  runThreads(2, [&](int rank) {
    if (rank == 0) {
      const Error error =
          errorOf([&] { leader.gather(3, createSharedMemory("test", kBytes), later()); });
      EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{2});
    } else {
      Connector caller(there, address.key, {2, 3, 0, Purpose::Join});
      while (caller.poll() == Connector::State::Pending) std::this_thread::yield();
    }
  });
}

TEST(HandOver, AddressesTravelAsText) {
  const Leader leader, another;
  const auto parsed = LeaderAddress::parse(leader.address().serialize());
  EXPECT_EQ(parsed.key, leader.address().key);
  EXPECT_EQ(parsed.socketName, leader.address().socketName);
  EXPECT_EQ(parsed.host, leader.address().host);
  EXPECT_NE(leader.address().key, another.address().key);
  EXPECT_NE(leader.address().socketName, another.address().socketName);
  EXPECT_EQ(errorOf([] { LeaderAddress::parse("something else"); }).kind(), ErrorKind::System);
}

/// A rank that has come, and has no room for what it is given: all are told which one it is.
TEST(HandOver, RankThatHasNoDescriptorLeftIsNamedToAll) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  Leading leading(3);
  const LeaderAddress address = leading.address();
  const auto expectNamed = [](const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::System) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 2 has no descriptor left"), std::string::npos)
        << error.what();
  };
  ForkedRanks others(2, [&](int index) {
    std::optional<AllDescriptorsInUse> none;
    UniqueFd brings = openOwnPidFd();
    UniqueFd forTheCall = openOwnPidFd();
    if (index == 1) {
      none.emplace();
      forTheCall = UniqueFd();
    }
    expectNamed(errorOf([&] {
      join(address, index + 1, 3, later(), nullptr, nullptr, hostIdentity(), std::move(brings));
    }));
  });
  expectNamed(leading.error());
  others.expectSuccess();
}

TEST(HandOver, LeaderThatHasNoDescriptorLeftIsNamedToAll) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  struct Flags {
    std::atomic<bool> hasJoined, isFull;
  };
  Shared<Flags> flags;
  Leader leader;
  const LeaderAddress address = leader.address();
  ForkedRanks others(3, [&](int index) {
    // Two that say they are rank 1: when one of them is refused, the other has joined.
    if (index == 2) awaitFlag(flags->isFull);
    const Error error = errorOf([&] { join(address, index < 2 ? 1 : 2, 3, later()); });
    if (error.kind() == ErrorKind::InvalidArgument) {
      flags->hasJoined = true;
      return;
    }
    EXPECT_EQ(error.kind(), ErrorKind::System) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{0}) << error.what();
  });
  std::optional<AllDescriptorsInUse> none;
  UniqueFd memory = createSharedMemory("test", kBytes), own = openOwnPidFd();
  const Error error = errorOf([&] {
    leader.gather(
        3, std::move(memory), later(),
        [&] {
          if (!flags->hasJoined || none) return;
          none.emplace();
          flags->isFull = true;
        },
        std::move(own));
  });
  none.reset();
  EXPECT_EQ(error.kind(), ErrorKind::System) << error.what();
  EXPECT_EQ(error.ranks(), std::vector<int>{0}) << error.what();
  others.expectSuccess();
}

/// An error of the system names nobody by itself; the others are to know of whom it is.
TEST(ShareHost, NamesTheRankThatHasNoDescriptorLeft) {
  Hosts hosts = hostsOfOwn(randomKey(), 2, 6, localAddresses());
  hosts.neighbours = neighboursAmong(std::vector{2, 5}, 2);
  UniqueFd memory = createSharedMemory("test", kBytes);
  const NoDescriptors none;
  const Error error = errorOf([&] { shareHost(hosts, 2, std::move(memory), later()); });
  EXPECT_EQ(error.kind(), ErrorKind::System) << error.what();
  EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
}

}  // namespace
}  // namespace ctran::testing
