// Windows of ranks on different hosts, whose devices put and get without the target's help.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ctran/memory/shared_allocation.h"
#include "ctran/window/window.h"
#include "tests/unit/support/network.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/verbs/verbs_fixture.h"

namespace ctran::testing {
namespace {

constexpr size_t kStripe = 200'000;

std::byte stripeAt(int origin, int target, size_t i, int round) {
  return static_cast<std::byte>(17 * origin + 5 * target + 3 * round + i % 251);
}

class RdmaWindow : public ibverbx::VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    ::setenv("CTRAN_IB", "1", 1);
    // Devices go on while all ranks sleep.
    devices_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        standIn->standInVerbsStep();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  void TearDown() override {
    // A thread lets go of communicators when their last bytes have arrived.
    const auto giveUp = std::chrono::steady_clock::now() + kGuard;
    while (standIn->standInVerbsObjects() > 0 && std::chrono::steady_clock::now() < giveUp) {
      std::this_thread::yield();
    }
    devices_ = {};
    for (const char* name : {"CTRAN_IB_QPS", "CTRAN_IB_HCA"}) ::unsetenv(name);
    ::setenv("CTRAN_IB", "0", 1);
    VerbsTest::TearDown();
  }

 private:
  std::jthread devices_;
};

/// With a seed.
class RdmaWindows : public RdmaWindow, public ::testing::WithParamInterface<uint64_t> {};

/// Every rank puts a stripe into the window of every other one, signals, and reads it back.
void exchange(Window& window, std::span<std::byte> memory, std::span<std::byte> source,
              std::span<std::byte> back, int round) {
  const int rank = window.rank(), size = window.size();
  for (int target = 0; target < size; ++target) {
    if (target == rank) continue;
    for (size_t i = 0; i < kStripe; ++i) source[i] = stripeAt(rank, target, i, round);
    Window::finish(window.put(target, kStripe * static_cast<size_t>(rank), source));
    Window::finish(window.signal(target));
    std::memset(back.data(), 0xee, back.size());
    Window::finish(window.get(target, kStripe * static_cast<size_t>(rank), back));
    for (size_t i = 0; i < kStripe; ++i) ASSERT_EQ(back[i], source[i]) << i;
  }
  for (int origin = 0; origin < size; ++origin) {
    if (origin == rank) continue;
    Window::finish(window.waitSignal(origin));
    for (size_t i = 0; i < kStripe; ++i) {
      ASSERT_EQ(memory[kStripe * static_cast<size_t>(origin) + i], stripeAt(origin, rank, i, round))
          << "from " << origin << " in round " << round << " at " << i;
    }
  }
}

void wait(Communicator& communicator) { communicator.run({}); }

TEST_P(RdmaWindows, WhatIsPutIsThereWhenItsSignalIs) {
  standIn->standInVerbsReset(GetParam());
  ::setenv("CTRAN_IB_QPS", GetParam() % 2 == 0 ? "1" : "3", 1);
  constexpr int kRanks = 3;
  runRanks(
      kRanks,
      [](Communicator& communicator) {
        const auto allocation = SharedAllocation::allocate(kStripe * kRanks);
        const auto buffers = SharedAllocation::allocate(2 * kStripe);
        const std::span<std::byte> memory(allocation->data(), kStripe * kRanks);
        const std::span<std::byte> source(buffers->data(), kStripe);
        const std::span<std::byte> back(buffers->data() + kStripe, kStripe);
        const auto window = Window::create(communicator, memory, {.signalWords = 1});
        for (int round = 0; round < 6; ++round) {
          exchange(*window, memory, source, back, round);
          wait(communicator);  // nobody puts the next round before all have looked
        }
        window->close();
      },
      1);
}

TEST_P(RdmaWindows, TheyGoOnWhenADeviceFails) {
  constexpr int kRetryExceeded = 12;
  standIn->standInVerbsReset(GetParam() % 3);
  ::setenv("CTRAN_IB_HCA", "=standin_0", 1);
  constexpr int kRanks = 2;
  runRanks(
      kRanks,
      [this](Communicator& communicator) {
        const auto allocation = SharedAllocation::allocate(kStripe * kRanks);
        const auto buffers = SharedAllocation::allocate(2 * kStripe);
        const std::span<std::byte> memory(allocation->data(), kStripe * kRanks);
        const std::span<std::byte> source(buffers->data(), kStripe);
        const std::span<std::byte> back(buffers->data() + kStripe, kStripe);
        const auto window = Window::create(communicator, memory, {.signalWords = 1});
        for (int round = 0; round < 12; ++round) {
          if (communicator.rank() == 0 && round == 5) {
            standIn->standInVerbsFail(0, 1 + GetParam() * 3, kRetryExceeded);
          }
          exchange(*window, memory, source, back, round);
          wait(communicator);
        }
        window->close();
      },
      1);
}

enum class Local { Allocated, Named, NamedEarlier, OfTheWindow };

class RdmaWindowFrom : public RdmaWindow, public ::testing::WithParamInterface<Local> {};

TEST_P(RdmaWindowFrom, TheTargetTakesNoPartInAGet) {
  runRanks(
      2,
      [this](Communicator& communicator) {
        const auto allocation = SharedAllocation::allocate(2 * kStripe);
        const auto buffer = SharedAllocation::allocate(kStripe);
        std::vector<std::byte> ordinary(kStripe);
        std::span<std::byte> back(ordinary);
        std::shared_ptr<void> named;
        const auto name = [&] { named = communicator.useDirectly(back, [] { return true; }); };
        if (GetParam() == Local::Allocated) back = {buffer->data(), kStripe};
        if (GetParam() == Local::OfTheWindow) back = {allocation->data() + kStripe, kStripe};
        if (GetParam() == Local::NamedEarlier) name();
        const std::span<std::byte> memory(allocation->data(), 2 * kStripe);
        const auto window = Window::create(communicator, memory, {.signalWords = 1});
        if (GetParam() == Local::Named) name();
        if (communicator.rank() == 0) {
          // The pair changes over to RDMA meanwhile. By messages a get has five requests or more.
          uint64_t requests = UINT64_MAX;
          for (int tries = 0; tries < 100'000 && requests != 1; ++tries) {
            const uint64_t before = standIn->standInVerbsExecuted();
            Window::finish(window->get(1, 0, back));
            requests = standIn->standInVerbsExecuted() - before;
          }
          EXPECT_EQ(requests, 1u);
        }
        window->close();
      },
      1);
}

INSTANTIATE_TEST_SUITE_P(Memory, RdmaWindowFrom,
                         ::testing::Values(Local::Allocated, Local::Named, Local::NamedEarlier,
                                           Local::OfTheWindow));
INSTANTIATE_TEST_SUITE_P(Seed, RdmaWindows, ::testing::Range<uint64_t>(0, kSanitizer ? 4 : 10));

}  // namespace
}  // namespace ctran::testing
