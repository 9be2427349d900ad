#include "ctran/base/spin_lock.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace ctran {
namespace {

TEST(SpinLock, OneThreadAtATimeHoldsIt) {
  constexpr int kThreads = 4, kTimes = 20'000;
  SpinLock lock;
  int count = 0;  // no atomic: TSan sees whether the lock orders the threads
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTimes; ++i) {
        const std::lock_guard held(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kTimes);
}

}  // namespace
}  // namespace ctran
