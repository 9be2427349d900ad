#include "ctran/os/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "ctran/os/futex.h"
#include "ctran/os/shared_memory.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

TEST(SharedMemory, CanBeNeitherGrownNorShrunk) {
  const UniqueFd fd = createSharedMemory("test", 8192);
  EXPECT_NE(::ftruncate(fd.get(), 4096), 0);
  EXPECT_NE(::ftruncate(fd.get(), 16384), 0);
  EXPECT_NE(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  const auto mapping = SharedMapping::map(fd, 8192);
  EXPECT_EQ(mapping->size(), 8192u);
  for (size_t i = 0; i < mapping->size(); ++i) ASSERT_EQ(mapping->data()[i], std::byte{0});
}

TEST(SharedMemory, OfAnotherFormIsRefused) {
  const UniqueFd fd = createSharedMemory("test", 8192);
  EXPECT_EQ(errorOf([&] { SharedMapping::map(fd, 4096); }).kind(), ErrorKind::System);
  EXPECT_EQ(errorOf([&] { SharedMapping::map(fd, 16384); }).kind(), ErrorKind::System);
  const UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 8192), 0);
  EXPECT_EQ(errorOf([&] { SharedMapping::map(unsealed, 8192); }).kind(), ErrorKind::System);
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(errorOf([&] { SharedMapping::map(file, 8192); }).kind(), ErrorKind::System);
}

TEST(SharedMemory, IsMappedOncePerProcess) {
  const UniqueFd fd = createSharedMemory("test", 4096), other = createSharedMemory("test", 4096);
  const UniqueFd copy(::dup(fd.get()));
  auto first = SharedMapping::map(fd, 4096);
  EXPECT_EQ(SharedMapping::map(copy, 4096), first);
  EXPECT_NE(SharedMapping::map(other, 4096), first);
  first->data()[17] = std::byte{42};
  first.reset();
  EXPECT_EQ(SharedMapping::map(copy, 4096)->data()[17], std::byte{42});  // mapped anew
}

TEST(Futex, SleepsUntilWokenUnlessTheWordHasChanged) {
  std::atomic<uint32_t> word{0};
  futexWait(word, 1, kGuard);  // returns at once: it is not 1
  std::thread other([&] {
    word = 1;
    futexWake(word);
  });
  while (word == 0) futexWait(word, 0, kGuard);
  other.join();
  EXPECT_FALSE(futexWait(word, 1, std::chrono::nanoseconds(1)));  // the limit
}

TEST(Futex, TellsOfASignal) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  struct sigaction before;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<uint32_t> word{0};
  std::atomic<bool> ended{false};
  std::thread sleeper([&] {
    EXPECT_TRUE(futexWait(word, 0, kGuard));
    ended = true;
  });
  while (!ended) {  // the first ones may come before it sleeps
    ::pthread_kill(sleeper.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  sleeper.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(Process, ThreadsOfTheEngineTakeNoSignals) {
  std::atomic<bool> started{false};
  startThread("ctran-test", [&] {
    sigset_t mask;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_TRUE(::sigismember(&mask, SIGINT));
    char name[16];
    ::pthread_getname_np(::pthread_self(), name, sizeof name);
    EXPECT_STREQ(name, "ctran-test");
    started = true;  // the last that it touches: nobody waits for its end
  });
  awaitFlag(started);
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_FALSE(::sigismember(&mask, SIGINT));  // this thread still does
}

TEST(Process, TokenIsOneForAllThreads) {
  const uint64_t token = processToken();
  EXPECT_NE(token, 0u);
  runThreads(4, [&](int) { EXPECT_EQ(processToken(), token); });
}

TEST(Process, NamesItselfAndItsHost) {
  EXPECT_NE(processName().find("(pid " + std::to_string(::getpid()) + ")"), std::string::npos);
  EXPECT_EQ(hostIdentity(), hostIdentity());
  EXPECT_GT(hostIdentity().size(), 36u);  // a boot id, and the network namespace
  EXPECT_GE(availableCores(), 1);
}

#if !defined(__SANITIZE_THREAD__)

TEST(Process, SaysToMountProcWhereThereIsNone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to hide /proc";
  ForkedRanks child(1, [&](int) {
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ASSERT_EQ(::mount("tmpfs", "/proc", "tmpfs", 0, nullptr), 0);
    const Error error = errorOf([] { hostIdentity(); });
    EXPECT_NE(std::string(error.what()).find("mount /proc"), std::string::npos) << error.what();
  });
  child.expectSuccess();
}

TEST(Process, ForkedChildHasATokenOfItsOwn) {
  const uint64_t token = processToken();
  ForkedRanks child(1, [&](int) {
    EXPECT_NE(processToken(), token);
    EXPECT_EQ(processToken(), processToken());
  });
  child.expectSuccess();
  EXPECT_EQ(processToken(), token);
}

TEST(Process, PidFdTellsOfTheEndOfTheProcessItself) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const UniqueFd readEnd(fds[0]);
  ForkedRanks ranks(1, [&](int) {
    const UniqueFd pidFd = openOwnPidFd();
    const UniqueFd keep(fds[1]);
    // A grandchild that lives on holds everything that its parent had open.
    if (::fork() == 0) {
      pollfd entry{pidFd.get(), POLLIN, 0};
      const bool noticed = ::poll(&entry, 1, static_cast<int>(kGuard.count()) * 1000) == 1;
      const char answer = noticed ? 'y' : 'n';
      ::_exit(::write(keep.get(), &answer, 1) == 1 ? 0 : 1);
    }
  });
  ranks.expectSuccess();
  ::close(fds[1]);
  char answer = 0;
  EXPECT_EQ(::read(readEnd.get(), &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
}

#endif

}  // namespace
}  // namespace ctran::testing
