#include "ctran/os/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "ctran/os/shared_memory.h"
#include "tests/unit/support/descriptors.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/strangers.h"

namespace ctran::testing {
namespace {

Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::milliseconds(50); }

struct Pair {
  UniqueFd a, b;
  Pair() {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
      throw std::runtime_error("socketpair");
    }
    a = UniqueFd(fds[0]);
    b = UniqueFd(fds[1]);
  }
};

std::vector<std::byte> bytes(size_t n) {
  std::vector<std::byte> data(n);
  for (size_t i = 0; i < n; ++i) data[i] = std::byte(i * 7 + i / 251);
  return data;
}

std::string uniqueName() { return "ctran-unix-socket-test-" + std::to_string(::getpid()); }

TEST(UnixSocket, MovesBytesAndDescriptors) {
  Pair pair;
  const auto sent = bytes(1'000'000);  // more than the kernel buffers
  const UniqueFd memory = createSharedMemory("test", 4096);
  const std::vector<int> fds(60, memory.get());
  std::thread sender([&] { sendAll(pair.a, sent, fds, later()); });
  std::vector<std::byte> got(sent.size());
  const auto received = receiveAll(pair.b, got, fds.size(), later());
  sender.join();
  EXPECT_TRUE(got == sent);
  ASSERT_EQ(received.size(), fds.size());
  // It is the same file.
  const auto one = SharedMapping::map(memory, 4096);
  EXPECT_EQ(SharedMapping::map(received.back(), 4096), one);
}

TEST(UnixSocket, GivesUpAtTheDeadline) {
  Pair pair;
  std::byte one[1];
  EXPECT_EQ(errorOf([&] { receiveAll(pair.b, one, 0, soon()); }).kind(), ErrorKind::Timeout);
  EXPECT_EQ(errorOf([&] { receiveAll(pair.b, one, 0, Deadline{}); }).kind(), ErrorKind::Timeout);
  const auto endless = bytes(10'000'000);
  EXPECT_EQ(errorOf([&] { sendAll(pair.a, endless, {}, soon()); }).kind(), ErrorKind::Timeout);
  const Socket listener = listenAbstract(uniqueName(), 1);
  EXPECT_FALSE(acceptOne(listener));
  const int sockets[] = {listener.get()};
  EXPECT_EQ(errorOf([&] { waitReadable(sockets, soon()); }).kind(), ErrorKind::Timeout);
}

TEST(UnixSocket, TellsThatThePeerHasGone) {
  Pair pair;
  { const UniqueFd gone = std::move(pair.a); }
  std::byte one[1];
  EXPECT_EQ(errorOf([&] { receiveAll(pair.b, one, 0, later()); }).kind(), ErrorKind::PeerLost);
  EXPECT_EQ(errorOf([&] { sendAll(pair.b, one, {}, later()); }).kind(), ErrorKind::PeerLost);
}

TEST(UnixSocket, RefusesAnotherNumberOfDescriptors) {
  const UniqueFd memory = createSharedMemory("test", 4096);
  for (const size_t count : {0, 1, 3, 200}) {
    Pair pair;
    const auto data = bytes(8);
    const std::vector<int> fds(count, memory.get());
    sendAll(pair.a, data, fds, later());
    std::vector<std::byte> got(8);
    EXPECT_EQ(errorOf([&] { receiveAll(pair.b, got, 2, later()); }).kind(), ErrorKind::System);
  }
}

TEST(UnixSocket, SaysWhenThereIsNoDescriptorLeftForThoseThatCome) {
  Pair pair;
  std::array<std::byte, 4> message{}, got{};
  const int fds[] = {pair.a.get(), pair.b.get()};
  sendAll(pair.a, message, fds, later());
  const Error error = errorOf([&] {
    const NoDescriptors none;
    receiveAll(pair.b, got, 2, later());
  });
  EXPECT_EQ(error.kind(), ErrorKind::System);
  EXPECT_EQ(error.op(), kNoDescriptors);
  EXPECT_NE(std::string(error.what()).find("Too many open files"), std::string::npos);
}

TEST(UnixSocket, AbstractNamesLiveAsLongAsTheListener) {
  const std::string name = uniqueName();
  EXPECT_FALSE(connectAbstract(name, later()));
  {
    const Socket listener = listenAbstract(name, 4);
    const Socket socket = connectAbstract(name, later());
    ASSERT_TRUE(socket);
    const Socket accepted = acceptOne(listener);
    EXPECT_TRUE(peerIsTrusted(accepted.fd()));
    EXPECT_TRUE(peerIsTrusted(socket.fd()));
    EXPECT_EQ(errorOf([&] { listenAbstract(name, 4); }).kind(), ErrorKind::System);
  }
  EXPECT_FALSE(connectAbstract(name, later()));
  EXPECT_EQ(errorOf([&] { connectAbstract(std::string(200, 'x'), later()); }).kind(),
            ErrorKind::InvalidArgument);
}

TEST(UnixSocket, WaitsWhileTheBacklogIsFull) {
  const Socket listener = listenAbstract(uniqueName(), 0);
  std::vector<Socket> connected;
  // The kernel takes a few more than asked for.
  const Error full = errorOf([&] {
    while (true) connected.push_back(connectAbstract(uniqueName(), soon()));
  });
  EXPECT_EQ(full.kind(), ErrorKind::Timeout);
  EXPECT_LT(connected.size(), 10u);
  std::thread acceptor([&] {
    for (size_t i = 0; i <= connected.size(); ++i) acceptWithin(listener, later());
  });
  EXPECT_TRUE(connectAbstract(uniqueName(), later()));
  acceptor.join();
}

/// As Ctrl-C does: it ends a wait for whoever does not read, or does not let anybody in.
TEST(UnixSocket, CanBeInterruptedWhileTheOtherSideDoesNothing) {
  struct Interrupted {};
  const Interrupt interrupt = [] { throw Interrupted(); };
  Pair pair;
  const auto endless = bytes(10'000'000);
  EXPECT_THROW(sendAll(pair.a, endless, {}, later(), interrupt), Interrupted);
  const Socket listener = listenAbstract(uniqueName(), 0);
  std::vector<Socket> connected;
  const auto connectForEver = [&] {
    while (true) connected.push_back(connectAbstract(uniqueName(), later(), interrupt));
  };
  EXPECT_THROW(connectForEver(), Interrupted);
}

/// The system allows a user's descriptors that are on their way only up to a limit.
TEST(UnixSocket, WaitsWhileTooManyDescriptorsAreOnTheirWay) {
  if (!canBecomeNobody()) GTEST_SKIP() << "needs root, to become a user who has limits";
  ForkedRanks sender(1, [](int) {
    constexpr int kLimit = 64;
    const rlimit limit{kLimit, kLimit};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    becomeNobody();
    const auto data = bytes(8);
    std::vector<Pair> pairs(6);
    const std::vector<int> fds(kLimit / 2, pairs[0].a.get());
    for (size_t i = 0; i < 3; ++i) sendAll(pairs[i].a, data, fds, later());
    // The others do not take what is theirs.
    const Error error = errorOf([&] { sendAll(pairs[3].a, data, fds, soon()); });
    EXPECT_EQ(error.op(), kNoDescriptors) << error.what();
    EXPECT_NE(std::string(error.what()).find("Too many references"), std::string::npos);
    std::atomic<int> waits{0};
    std::thread reader([&] {
      while (waits < 1) std::this_thread::yield();
      for (size_t i = 0; i < 3; ++i) pairs[i].b = UniqueFd();
    });
    sendAll(pairs[4].a, data, fds, later(), [&] { ++waits; });
    reader.join();
    EXPECT_GT(waits, 0);
  });
  sender.expectSuccess();
}

TEST(UnixSocket, TellsAnotherUserAtEitherEnd) {
  if (!canBecomeNobody()) GTEST_SKIP() << "needs root, to become another user";
  const Socket listener = listenAbstract(uniqueName(), 4);
  const std::string name = uniqueName();
  ForkedRanks caller(1, [&](int) {
    becomeNobody();
    const Socket socket = connectAbstract(name, later());
    EXPECT_TRUE(peerIsTrusted(socket.fd()));  // root's, who may do everything anyhow
    hearAll(socket, later());
  });
  {
    const Socket accepted = acceptWithin(listener, later());
    EXPECT_FALSE(peerIsTrusted(accepted.fd()));
  }
  caller.expectSuccess();
  const NameThief thief(name + "-of-another");
  EXPECT_FALSE(peerIsTrusted(connectAbstract(name + "-of-another", later()).fd()));
}

TEST(UnixSocket, SaysWhichOfManyAreReadable) {
  Pair pairs[3];
  std::vector<int> sockets;
  for (const Pair& pair : pairs) sockets.push_back(pair.b.get());
  const auto data = bytes(1);
  sendAll(pairs[1].a, data, {}, later());
  EXPECT_EQ(waitReadable(sockets, later()), std::vector<size_t>{1});
  { const UniqueFd hungUp = std::move(pairs[2].a); }
  EXPECT_EQ(waitReadable(sockets, later()), (std::vector<size_t>{1, 2}));
}

}  // namespace
}  // namespace ctran::testing
