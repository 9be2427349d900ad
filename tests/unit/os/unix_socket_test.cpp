#include "ctran/os/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "ctran/os/shared_memory.h"
#include "tests/unit/support/descriptors.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::milliseconds(50); }
Deadline later() { return std::chrono::steady_clock::now() + kGuard; }

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
  const UniqueFd listener = listenAbstract(uniqueName(), 1);
  EXPECT_EQ(errorOf([&] { acceptFrom(listener, soon()); }).kind(), ErrorKind::Timeout);
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
    const UniqueFd listener = listenAbstract(name, 4);
    const UniqueFd socket = connectAbstract(name, later());
    ASSERT_TRUE(socket);
    const UniqueFd accepted = acceptFrom(listener, later());
    EXPECT_TRUE(peerIsTrusted(accepted));
    EXPECT_EQ(errorOf([&] { listenAbstract(name, 4); }).kind(), ErrorKind::System);
  }
  EXPECT_FALSE(connectAbstract(name, later()));
  EXPECT_EQ(errorOf([&] { connectAbstract(std::string(200, 'x'), later()); }).kind(),
            ErrorKind::InvalidArgument);
}

TEST(UnixSocket, WaitsWhileTheBacklogIsFull) {
  const UniqueFd listener = listenAbstract(uniqueName(), 0);
  std::vector<UniqueFd> connected;
  // The kernel takes a few more than asked for.
  const Error full = errorOf([&] {
    while (true) connected.push_back(connectAbstract(uniqueName(), soon()));
  });
  EXPECT_EQ(full.kind(), ErrorKind::Timeout);
  EXPECT_LT(connected.size(), 10u);
  std::thread acceptor([&] {
    for (size_t i = 0; i <= connected.size(); ++i) acceptFrom(listener, later());
  });
  EXPECT_TRUE(connectAbstract(uniqueName(), later()));
  acceptor.join();
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
