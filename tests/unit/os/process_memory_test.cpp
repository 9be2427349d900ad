#include "ctran/os/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <vector>

namespace ctran::testing {
namespace {

TEST(ProcessMemory, OfAnotherProcessIsRead) {
  std::vector<std::byte> theirs(1 << 20), ours(1 << 20);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (size_t i = 0; i < theirs.size(); ++i) theirs[i] = static_cast<std::byte>(i * 7 + 1);
    kill(getpid(), SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  const int error = readProcessMemory(child, theirs.data(), ours.data(), ours.size());
  ASSERT_TRUE(error == 0 || error == EPERM) << error;
  if (error == 0) {
    for (size_t i = 0; i < ours.size(); ++i) ASSERT_EQ(ours[i], static_cast<std::byte>(i * 7 + 1));
  }
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(readProcessMemory(child, theirs.data(), ours.data(), 8), ESRCH);
}

TEST(ProcessMemory, WhatIsNotThereIsTold) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const two =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(two, MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(two);
  ASSERT_EQ(munmap(bytes + page, page), 0);
  std::vector<std::byte> ours(2 * page);
  EXPECT_EQ(readProcessMemory(getpid(), bytes, ours.data(), page), 0);
  EXPECT_EQ(readProcessMemory(getpid(), bytes, ours.data(), 2 * page), EFAULT);
  EXPECT_EQ(readProcessMemory(getpid(), bytes, ours.data(), 0), 0);
  munmap(two, page);
}

}  // namespace
}  // namespace ctran::testing
