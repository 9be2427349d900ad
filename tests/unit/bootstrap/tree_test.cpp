// Ranks that meet in a tree, as more do than one can hear.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "ctran/bootstrap/bootstrap_tree.h"
#include "ctran/bootstrap/hand_over.h"
#include "ctran/bootstrap/hand_over_messages.h"
#include "ctran/bootstrap/local_call.h"
#include "ctran/os/process.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

/// All others have come by then.
Deadline afterArrival() { return std::chrono::steady_clock::now() + 3 * kArrival; }

TEST(BootstrapTree, EachRankIsTheChildOfOne) {
  for (const int size : {1, 2, 64, 65, 66, 127, 128, 4032, 4033, 5000, 131'072}) {
    int children = 0;
    for (int r = 0; r < size; ++r) {
      const BootstrapTree tree{r, size};
      ASSERT_LE(tree.children(), BootstrapTree::kChildren);
      children += tree.children();
      for (int c = 0; c < tree.children(); ++c) {
        ASSERT_EQ(BootstrapTree::parentOf(tree.firstChild() + c), r) << size;
      }
    }
    EXPECT_EQ(children, size - 1);
  }
}

TEST(BootstrapTree, KnowsHowManyAreBelowAndWho) {
  constexpr int kSize = 5000;
  std::vector<int> below(kSize);
  for (int r = 0; r < kSize; ++r) {
    for (int above = r;; above = BootstrapTree::parentOf(above)) {
      ++below[above];
      EXPECT_TRUE((BootstrapTree{above, kSize}.isAbove(r)));
      if (above == 0) break;
    }
  }
  for (int r = 0; r < kSize; ++r) EXPECT_EQ((BootstrapTree{r, kSize}.ranks()), below[r]) << r;
  EXPECT_FALSE((BootstrapTree{1, kSize}.isAbove(2)));
  EXPECT_FALSE((BootstrapTree{1, kSize}.isAbove(0)));
  EXPECT_EQ((BootstrapTree{0, 1}.levels()), 0);
  EXPECT_EQ((BootstrapTree{0, 64}.levels()), 1);
  EXPECT_EQ((BootstrapTree{0, 65}.levels()), 2);
  EXPECT_EQ((BootstrapTree{0, 131'072}.levels()), 3);
  EXPECT_EQ((BootstrapTree{64, 65}.levels()), 0);
}

/// Sixty-six ranks, eleven to a host: two of them are below rank 1.
class Rendezvous66 : public ::testing::Test {
 protected:
  static constexpr int kSize = 66;
  static constexpr int kPerHost = 11;

  static std::string hostOf(int rank) {
    return hostIdentity("host" + std::to_string(rank / kPerHost));
  }

  /// What is above a rank.
  const Leader& above(int rank) const { return rank > BootstrapTree::kChildren ? one_ : root_; }

  std::optional<HostGroup> meet(int rank, Deadline deadline, const Interrupt& interrupt = nullptr) {
    if (rank == 0) return root_.gather(kSize, {}, deadline, interrupt);
    return join(above(rank).address(), rank, kSize, deadline, interrupt, nullptr, hostOf(rank),
                openOwnPidFd(), rank == 1 ? &one_ : nullptr);
  }

  /// All but `absent` meet; rank 0 until `deadline`, the others for long. What they are told.
  std::map<int, Error> errorsWithout(const std::vector<int>& absent, Deadline deadline) {
    std::map<int, Error> errors;
    std::mutex mutex;
    runThreads(kSize, [&](int rank) {
      if (std::find(absent.begin(), absent.end(), rank) != absent.end()) return;
      const Error error = errorOf([&] { meet(rank, rank == 0 ? deadline : later()); });
      const std::lock_guard lock(mutex);
      errors.emplace(rank, error);
    });
    return errors;
  }

  /// What the others are told when 64 says `what` and hangs up, after all have come.
  std::map<int, Error> errorsWhen64Says(std::span<const std::byte> what);

  static void expectAll(const std::map<int, Error>& errors, size_t count, ErrorKind kind,
                        const std::vector<int>& ranks) {
    EXPECT_EQ(errors.size(), count);
    for (const auto& [rank, error] : errors) {
      EXPECT_EQ(error.kind(), kind) << "rank " << rank << ": " << error.what();
      EXPECT_EQ(error.ranks(), ranks) << "rank " << rank << ": " << error.what();
    }
  }

  Leader root_{Leader::Reach::AllHosts, hostOf(0)};
  Leader one_{Leader::Reach::AllHosts, hostOf(1), root_.address().key};
};

TEST_F(Rendezvous66, TellsEachRankItsNeighboursAndOneOfEachHostAllPlaces) {
  std::vector<std::optional<HostGroup>> groups(kSize);
  runThreads(kSize, [&](int rank) { groups[rank] = meet(rank, later()); });
  for (int r = 0; r < kSize; ++r) {
    ASSERT_TRUE(groups[r] && groups[r]->hosts) << r;
    const Hosts& hosts = *groups[r]->hosts;
    const int first = r / kPerHost * kPerHost;
    std::vector<int> near(kPerHost);
    for (int i = 0; i < kPerHost; ++i) near[i] = first + i;
    EXPECT_EQ(hosts.neighbours.list(), near) << r;
    EXPECT_EQ(hosts.neighbours.port, groups[first]->hosts->acceptor->addresses()[0].port);
    EXPECT_EQ(hosts.key, root_.address().key);
    if (r != first) continue;
    ASSERT_EQ(hosts.places.size(), kSize);
    for (int other = 0; other < kSize; ++other) {
      EXPECT_EQ(hosts.places[other].rank, other);
      EXPECT_EQ(hosts.places[other].port, groups[other]->hosts->acceptor->addresses()[0].port);
      EXPECT_EQ(hosts.places.siteOf(other).host, Site::at(hostOf(other), {}).host);
    }
  }
}

TEST_F(Rendezvous66, ARankThatDoesNotComeIsNamedByAllThoughOthersWaitForIt) {
  const auto errors = errorsWithout({65}, afterArrival());
  expectAll(errors, kSize - 1, ErrorKind::Timeout, {65});
}

TEST_F(Rendezvous66, RanksThatDoNotComeAreNamedTogether) {
  auto errors = errorsWithout({7, 64}, afterArrival());
  // Those who told rank 0 of one of them know of that one.
  std::map<int, Error> told;
  for (const int r : {1, 65}) told.insert(errors.extract(r));
  expectAll(told, 2, ErrorKind::Timeout, {64});
  expectAll(errors, kSize - 4, ErrorKind::Timeout, {7, 64});
}

/// Rank 64 calls, proves the key, says who it is and, once `othersAreIn`, `what`, and hangs up.
void sayAs64(const LeaderAddress& address, int size, std::span<const std::byte> what,
             const std::atomic<bool>& othersAreIn) {
  const LocalCall call = callLocal(address.socketName.data(), address.key, later());
  ASSERT_TRUE(call.socket);
  hand_over::HostHello hello{hand_over::kProtocol, 64, size, ::getpid(), processToken()};
  const UniqueFd brings = openOwnPidFd();
  const int fds[] = {brings.get()};
  sendAll(call.socket.fd(), bytesOf(hello), fds, later());
  while (!othersAreIn) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!what.empty()) sendAll(call.socket.fd(), what, {}, later());
}

std::map<int, Error> Rendezvous66::errorsWhen64Says(std::span<const std::byte> what) {
  // Those without ranks below come twice: when one is turned away, the other has been let in.
  constexpr int kTwice = kSize - 3;
  std::atomic<int> turnedAway{0};
  std::atomic<bool> othersAreIn{false};
  std::map<int, Error> errors;
  std::mutex mutex;
  runThreads(kSize + kTwice, [&](int i) {
    const int rank = i < kSize ? i : i - kSize + 2 + (i - kSize + 2 >= 64);
    if (rank == 64) return sayAs64(one_.address(), kSize, what, othersAreIn);
    const Error error = errorOf([&] { meet(rank, later()); });
    if (error.kind() == ErrorKind::InvalidArgument) {
      if (++turnedAway == kTwice) othersAreIn = true;
      return;
    }
    const std::lock_guard lock(mutex);
    errors.emplace(rank, error);
  });
  return errors;
}

TEST_F(Rendezvous66, ARankThatDiesIsNamedByAll) {
  const auto errors = errorsWhen64Says({});
  expectAll(errors, kSize - 1, ErrorKind::PeerLost, {64});
}

/// A header of the tree's messages: protocol, word, bytes that follow.
std::vector<std::byte> message(uint32_t word, uint64_t bytes, std::span<const std::byte> rest) {
  std::vector<std::byte> all(16 + rest.size());
  std::memcpy(all.data(), &hand_over::kProtocol, 4);
  std::memcpy(all.data() + 4, &word, 4);
  std::memcpy(all.data() + 8, &bytes, 8);
  std::copy(rest.begin(), rest.end(), all.begin() + 16);
  return all;
}

/// What rank 1 of 65 tells its parent, whom this plays, when the time is up as rank 64 comes. Rank
/// 64 has been let in before, if there was time for that.
uint32_t toldAsTheTimeIsUp() {
  constexpr int kSize = 65;
  constexpr uint32_t kReport = 100, kTimeUp = 101;
  const std::string host = hostIdentity();
  const JobKey key = randomKey();
  Leader one(Leader::Reach::OneHost, host, key);
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  const UniqueFd parent(ends[1]);
  std::atomic<bool> pauses{false}, hasPaused{false}, goesOn{false};
  std::thread rank1([&] {
    hand_over::JoiningRanks joining(one.local(), nullptr, key, kSize, 64, 1);
    const auto tick = [&] {
      if (!pauses) return;
      hasPaused = true;
      while (!goesOn) std::this_thread::yield();
    };
    errorOf([&] {
      hand_over::meetInTree(&joining, {1, kSize}, Socket::made([&] { return ends[0]; }), key, host,
                            later(), tick);
    });
  });
  const LocalCall call = callLocal(one.address().socketName.data(), key, later());
  hand_over::HostHello hello{hand_over::kProtocol, 64, kSize, ::getpid(), processToken()};
  const UniqueFd brings = openOwnPidFd();
  const int fds[] = {brings.get()};
  sendAll(call.socket.fd(), bytesOf(hello), fds, later());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const hand_over::OwnHosts own = hand_over::makeHosts(key, 64, kSize, host);
  pauses = true;
  while (!hasPaused) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  sendAll(parent, message(kTimeUp, 0, {}), {}, later());
  const auto bytes = own.places.bytes();
  sendAll(call.socket.fd(), message(kReport, bytes.size(), bytes), {}, later());
  goesOn = true;
  std::vector<std::byte> said(16);
  receiveAll(parent, said, 0, later());
  ::shutdown(parent.get(), SHUT_RDWR);
  rank1.join();
  uint32_t word = 0;
  std::memcpy(&word, said.data() + 4, sizeof word);
  return word;
}

TEST(Rendezvous65, ARankThatComesAsTheTimeIsUpIsNotMissing) {
  constexpr uint32_t kReport = 100;
  uint32_t word = 0;
  for (int attempt = 0; attempt < 10 && word != kReport; ++attempt) word = toldAsTheTimeIsUp();
  EXPECT_EQ(word, kReport);
}

TEST_F(Rendezvous66, ARankThatTellsNonsenseIsNamedByAll) {
  constexpr uint32_t kReport = 100, kFailed = 102;
  Place of63, of64;
  of63.rank = 63;
  of64.rank = 64;
  const Places wrong(of63, {});
  std::vector<std::byte> failure(8 + 4 * hand_over::kMaxRanks);  // that names nobody
  const std::vector<std::vector<std::byte>> lies{
      message(kReport, uint64_t{1} << 60, {}),                // more than there can be
      message(kReport, wrong.bytes().size(), wrong.bytes()),  // of a rank that is not below it
      message(kReport, 4, std::vector<std::byte>(4)),
      message(7, 0, {}),
      message(kFailed, failure.size(), failure),
  };
  for (const auto& lie : lies) {
    const auto errors = errorsWhen64Says(lie);
    EXPECT_EQ(errors.size(), kSize - 1u);
    for (const auto& [rank, error] : errors) {
      const std::vector<int>& named = error.ranks();
      EXPECT_EQ(named.size(), 1u) << error.what();
      EXPECT_TRUE(named == std::vector<int>{64} || named == std::vector<int>{1}) << error.what();
    }
  }
}

}  // namespace
}  // namespace ctran::testing
