#include "ctran/os/socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "ctran/os/tcp_socket.h"
#include "ctran/os/unix_socket.h"
#include "tests/unit/support/descriptors.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/strangers.h"

namespace ctran::testing {
namespace {

bool isSocket(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

/// While a child lives that was forked with nothing to spare, the end of its parent's connections
/// is seen, and their names and ports are free.
TEST(Socket, IsNotKeptByAChildThatHasNoDescriptorLeft) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  const std::string name = "ctran-socket-test-" + std::to_string(::getpid());
  std::optional<Socket> listener = listenAbstract(name, 4);
  const Socket caller = connectAbstract(name, later());
  std::optional<Socket> accepted = acceptOne(*listener);
  std::vector<NetAddress> addresses{localAddresses().back()};
  std::optional<Socket> port = listenTcp(addresses);
  const std::vector<int> all{listener->get(), caller.get(), accepted->get(), port->get()};
  Shared<std::atomic<bool>> isOver;
  std::optional<AllDescriptorsInUse> none(std::in_place);
  ForkedRanks child(1, [&](int) {
    for (const int fd : all) EXPECT_FALSE(isSocket(fd));
    awaitFlag(*isOver);
  });
  none.reset();
  listener.reset();
  accepted.reset();
  port.reset();
  EXPECT_TRUE(hearAll(caller, later()).bytes.empty());
  EXPECT_FALSE(connectAbstract(name, later()));
  isOver->store(true);
  child.expectSuccess();
}

/// A fork in another thread at the worst moment, when the socket is there and nobody knows it yet.
TEST(Socket, IsNotKeptByAChildThatIsForkedWhileItIsMade) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  std::atomic<pid_t> forker{0};
  std::atomic<int> made{-1};
  std::thread thread;
  int status = -1;
  const Socket socket = Socket::made([&] {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    made = fd;
    thread = std::thread([&] {
      forker = ::gettid();
      const pid_t child = ::fork();
      if (child == 0) ::_exit(isSocket(made) ? 1 : 0);
      ::waitpid(child, &status, 0);
    });
    while (forker == 0) std::this_thread::yield();
    awaitSleep(forker);  // it waits for this to end
    return fd;
  });
  thread.join();
  EXPECT_TRUE(isSocket(socket.get()));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ctran::testing
