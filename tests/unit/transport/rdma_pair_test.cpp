// Two ranks over the stand-in for libibverbs: registered memory that they put to and get from, and
// what happens to all that is on its way when a device fails.
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/memory/shared_allocation.h"
#include "ctran/transport/ib/link.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/tcp_ranks.h"
#include "tests/unit/verbs/verbs_fixture.h"

namespace ctran::testing {
namespace {

constexpr uint64_t kSeeds = kSanitizer ? 4 : 12;

std::byte valueAt(size_t i, uint64_t round) { return static_cast<std::byte>(i * 7 + round * 13); }

void fill(std::span<std::byte> memory, uint64_t round) {
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = valueAt(i, round);
}

bool holds(std::span<const std::byte> memory, uint64_t round) {
  for (size_t i = 0; i < memory.size(); ++i) {
    if (memory[i] != valueAt(i, round)) return false;
  }
  return true;
}

bool isReadable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

/// Memory that devices use where it is.
struct Memory {
  explicit Memory(size_t bytes)
      : allocation(SharedAllocation::allocate(bytes)), span(allocation->data(), bytes) {}
  std::shared_ptr<SharedAllocation> allocation;
  std::span<std::byte> span;
};

class RdmaPair : public ibverbx::VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    set("CTRAN_IB", "1");
  }
  void TearDown() override {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
    ::setenv("CTRAN_IB", "0", 1);
    VerbsTest::TearDown();
  }
  void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

  /// Two ranks that send to each other over RDMA.
  struct Ranks {
    Ranks() {
      TcpSide::introduce(a, b);
      a.call();
      untilRdma();
    }
    void untilRdma() {
      until([this] {
        return a.transport().pathTo(1).starts_with("RDMA") &&
               b.transport().pathTo(0).starts_with("RDMA");
      });
    }
    void until(const std::function<bool()>& condition) { pollUntil({&a, &b}, condition); }
    void untilEnded(const Transfer& transfer) {
      until([&] {
        Condition ended = transfer.ended();
        return ended.holds();
      });
    }
    /// A message of rank 0 that rank 1 has got.
    void sendOne(uint64_t number, std::byte value) {
      std::byte got{};
      const MessageName name{kMessageQueue, 0, number};
      const auto inbound = b.transport().receive(name, 0, &got, 1, {});
      const auto outbound = a.transport().send(name, 1, &value, 1, {});
      untilEnded(*inbound);
      EXPECT_EQ(got, value);
    }
    TcpSide a{0}, b{1};
  };

 private:
  std::vector<std::string> names_;
};

TEST_F(RdmaPair, DeviceHasNoMoreLinksThanItsCompletionQueueTakes) {
  std::string why;
  const auto devices = IbDevice::openAll(IbSettings::fromEnvironment(), 1, why);
  ASSERT_FALSE(devices.empty()) << why;
  std::vector<std::unique_ptr<IbLink>> links;
  for (int i = 0; i < 2; ++i) {  // of one peer
    auto made = IbLink::create(*devices.front(), 0, {});
    ASSERT_TRUE(made.hasValue()) << made.error().errStr;
    links.push_back(*std::move(made));
  }
  const auto tooMany = IbLink::create(*devices.front(), 0, {});
  ASSERT_TRUE(tooMany.hasError());
  EXPECT_NE(tooMany.error().errStr.find("no room for another peer"), std::string::npos);
  links.pop_back();
  EXPECT_TRUE(IbLink::create(*devices.front(), 0, {}).hasValue());
}

TEST_F(RdmaPair, WhatIsPutIsThereWhenALaterMessageIs) {
  for (const char* qps : {"1", "4"}) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      standIn->standInVerbsReset(seed);
      set("CTRAN_IB_QPS", qps);
      Memory source(600'000), target(700'000);
      std::memset(target.span.data(), 0xee, target.span.size());
      Ranks ranks;
      const auto exposed = ranks.b.transport().registerMemory(target.span);
      for (uint64_t round = 0; round < 3; ++round) {
        fill(source.span, round);
        const auto put = ranks.a.transport().put(1, exposed->remote, 50'000, source.span);
        ASSERT_NE(put, nullptr);
        ranks.sendOne(round, std::byte{3});
        EXPECT_TRUE(holds(target.span.subspan(50'000, 600'000), round)) << seed;
        ranks.untilEnded(*put);
      }
      EXPECT_EQ(target.span[49'999], std::byte{0xee});
      EXPECT_EQ(target.span[650'000], std::byte{0xee});
    }
  }
}

TEST_F(RdmaPair, AGetSeesWhatWasPutBeforeAndNothingThatWasPutLater) {
  for (const char* qps : {"1", "3"}) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      standIn->standInVerbsReset(seed);
      set("CTRAN_IB_QPS", qps);
      Memory source(400'000), later(400'000), target(400'000), got(400'000);
      Ranks ranks;
      const auto exposed = ranks.b.transport().registerMemory(target.span);
      fill(source.span, 1);
      fill(later.span, 2);
      Transport& origin = ranks.a.transport();
      const auto first = origin.put(1, exposed->remote, 0, source.span);
      const auto get = origin.get(1, exposed->remote, 0, got.span);
      const auto second = origin.put(1, exposed->remote, 0, later.span);
      ASSERT_TRUE(first && get && second);
      ranks.untilEnded(*get);
      EXPECT_TRUE(holds(got.span, 1)) << seed;
      ranks.untilEnded(*second);
      ranks.sendOne(1, std::byte{1});
      EXPECT_TRUE(holds(target.span, 2)) << seed;
    }
  }
}

/// Among the moments is the one at which the other end lets in a caller that has hung up.
TEST_F(RdmaPair, WhoLeavesIsNeverALoss) {
  for (const bool callerLeaves : {true, false}) {
    for (int turns = 0; turns < 16; ++turns) {
      TcpSide a{0}, b{1};
      TcpSide::introduce(a, b);
      a.call();
      for (int turn = 0; turn < turns; ++turn) (turn % 2 == 0 ? b : a).poll(1);
      TcpSide &one = callerLeaves ? a : b, &other = callerLeaves ? b : a;
      one.transport().leave(kGuard);
      pollUntil({&other}, [&] { return other.transport().connections() == 0; });
      other.poll(100);
      EXPECT_EQ(other.error, nullptr) << other.error->what() << " after " << turns << " turns";
    }
  }
}

TEST_F(RdmaPair, OnlyRegisteredMemoryIsReached) {
  Memory source(1000), target(1000);
  std::vector<std::byte> ordinary(1000);
  Ranks ranks;
  const auto exposed = ranks.b.transport().registerMemory(target.span.first(500));
  Transport& origin = ranks.a.transport();
  EXPECT_TRUE(origin.reaches(1, exposed->remote, source.span));
  EXPECT_FALSE(origin.reaches(1, exposed->remote, ordinary));
  EXPECT_EQ(origin.put(1, exposed->remote, 0, std::span(ordinary).first(10)), nullptr);
  EXPECT_THROW(origin.put(1, exposed->remote, 491, source.span.first(10)), Error);
  EXPECT_THROW(origin.get(1, exposed->remote, SIZE_MAX, source.span.first(2)), Error);
}

TEST_F(RdmaPair, NamedMemoryServesOtherTransportsUntilItIsLetGo) {
  std::vector<std::byte> source(100'000);
  Memory target(source.size());
  Ranks first;
  auto second = std::make_unique<Ranks>();
  second->a.transport().shareDirectMemory(first.a.transport().directMemory());
  auto named = first.a.transport().useDirectly(source, [] { return true; });
  const auto exposed = first.b.transport().registerMemory(target.span);
  auto elsewhere = second->b.transport().registerMemory(target.span);
  const auto putTo = [&](Ranks& ranks, const RemoteMemory& remote, uint64_t round) {
    fill(source, round);
    const auto put = ranks.a.transport().put(1, remote, 0, source);
    ASSERT_NE(put, nullptr);
    ranks.untilEnded(*put);
    EXPECT_TRUE(holds(target.span, round));
  };
  putTo(*second, elsewhere->remote, 1);
  putTo(first, exposed->remote, 2);
  elsewhere.reset();
  second.reset();
  putTo(first, exposed->remote, 3);
  named.reset();
  EXPECT_FALSE(first.a.transport().reaches(1, exposed->remote, source));
}

TEST_F(RdmaPair, MemoryThatIsNotRegisteredAnyMoreIsNotWritten) {
  set("CTRAN_IB_FAIL_OVER", "0");
  Memory source(1000), target(1000);
  std::memset(target.span.data(), 0xee, target.span.size());
  fill(source.span, 4);
  Ranks ranks;
  auto exposed = ranks.b.transport().registerMemory(target.span);
  const RemoteMemory remote = exposed->remote;
  exposed.reset();
  const auto put = ranks.a.transport().put(1, remote, 0, source.span);
  ASSERT_NE(put, nullptr);
  ranks.until([&] { return ranks.a.error != nullptr; });
  EXPECT_EQ(ranks.a.error->kind(), ErrorKind::PeerLost);
  for (const std::byte value : target.span) ASSERT_EQ(value, std::byte{0xee});
}

/// Puts, gets, and messages of all sizes, of which the device fails somewhere in between.
TEST_F(RdmaPair, NothingIsLostAndOrderIsKeptWhenADeviceFails) {
  constexpr int kRetryExceeded = 12;
  for (const char* devices : {"=standin_0", ""}) {
    set("CTRAN_IB_HCA", devices);
    for (uint64_t after = 1; after < 60; after += kSanitizer ? 13 : 5) {
      standIn->standInVerbsReset(after % 3 == 0 ? 0 : after);
      set("CTRAN_IB_QPS", after % 2 == 0 ? "1" : "2");
      Memory source(300'000), back(300'000), target(300'000), large(900'000), there(900'000);
      Ranks ranks;
      const auto exposed = ranks.b.transport().registerMemory(target.span);
      Transport &origin = ranks.a.transport(), &other = ranks.b.transport();
      standIn->standInVerbsFail(0, after, kRetryExceeded);
      bool wentOn = false;
      for (uint64_t round = 0; round < 8; ++round) {
        fill(source.span, round);
        fill(large.span, round + 100);
        const MessageName name{kMessageQueue, 1, round};
        const auto inbound = other.receive(name, 0, there.span.data(), there.span.size(), {});
        const auto put = origin.put(1, exposed->remote, 0, source.span);
        const auto get = put ? origin.get(1, exposed->remote, 0, back.span) : nullptr;
        const auto outbound = origin.send(name, 1, large.span.data(), large.span.size(), {});
        ranks.sendOne(round, static_cast<std::byte>(round));
        if (put) {
          EXPECT_TRUE(holds(target.span, round)) << after << " in round " << round;
          ranks.untilEnded(*put);
        } else {
          wentOn = true;
        }
        if (get) {
          ranks.untilEnded(*get);
          EXPECT_TRUE(holds(back.span, round)) << after << " in round " << round;
        }
        ranks.untilEnded(*inbound);
        ranks.untilEnded(*outbound);
        EXPECT_TRUE(holds(there.span, round + 100)) << after << " in round " << round;
        ASSERT_EQ(ranks.a.error, nullptr) << ranks.a.error->what();
        ASSERT_EQ(ranks.b.error, nullptr) << ranks.b.error->what();
      }
      if (*devices != '\0') {
        EXPECT_TRUE(wentOn) << after;
        EXPECT_NE(origin.pathTo(1).find("TCP: RDMA over standin_0:1 has failed"), std::string::npos)
            << origin.pathTo(1);
      } else {
        ranks.untilRdma();
      }
    }
  }
}

TEST_F(RdmaPair, ADeviceThatIsRemovedAndACableThatIsPulledAreNoticedWithoutTraffic) {
  for (const bool removes : {true, false}) {
    standIn->standInVerbsReset(0);
    Ranks ranks;
    const std::string before = ranks.a.transport().pathTo(1);
    const std::string device = before.substr(6, 9);  // RDMA (standin_0:1)
    if (removes) {
      standIn->standInVerbsRemove(device.c_str());
    } else {
      standIn->standInVerbsLink(device.c_str(), 0);
    }
    ranks.until([&] {
      const std::string now = ranks.a.transport().pathTo(1);
      return now.starts_with("RDMA") && now != before;
    });
    ranks.sendOne(1, std::byte{5});
    EXPECT_EQ(ranks.a.error, nullptr);
    EXPECT_EQ(ranks.b.error, nullptr);
  }
}

TEST_F(RdmaPair, AQueueThatOverrunsAndAQueuePairThatFailsAreNoticedWithoutTraffic) {
  for (const auto event : {ibverbx::IBV_EVENT_CQ_ERR, ibverbx::IBV_EVENT_QP_FATAL}) {
    standIn->standInVerbsReset(0);
    Ranks ranks;
    const std::string before = ranks.a.transport().pathTo(1);
    standIn->standInVerbsBreak(0, event);
    ranks.until([&] {
      const std::string now = ranks.a.transport().pathTo(1);
      return now.starts_with("RDMA") && now != before;
    });
    ranks.sendOne(1, std::byte{5});
    EXPECT_EQ(ranks.a.error, nullptr);
    EXPECT_EQ(ranks.b.error, nullptr);
  }
}

TEST_F(RdmaPair, AReceiverThatIsNotReadyHoldsTheSenderBackAndLosesNothing) {
  constexpr size_t kMessages = 600;  // more than a queue pair has receives
  for (const char* qps : {"1", "2"}) {
    set("CTRAN_IB_QPS", qps);
    standIn->standInVerbsReset(0);
    Ranks ranks;
    std::vector<std::byte> values(kMessages), got(kMessages);
    fill(values, 3);
    std::vector<std::unique_ptr<Outbound>> outbound;
    std::vector<std::unique_ptr<Inbound>> inbound;
    for (size_t i = 0; i < kMessages; ++i) {
      const MessageName name{kMessageQueue, 0, i};
      outbound.push_back(ranks.a.transport().send(name, 1, &values[i], 1, {}));
      ranks.a.poll(1);
    }
    for (size_t i = 0; i < kMessages; ++i) {
      const MessageName name{kMessageQueue, 0, i};
      inbound.push_back(ranks.b.transport().receive(name, 0, &got[i], 1, {}));
    }
    for (const auto& each : inbound) ranks.untilEnded(*each);
    EXPECT_EQ(got, values);
    EXPECT_TRUE(ranks.a.transport().pathTo(1).starts_with("RDMA"));
  }
}

/// A rank has sent, and is in no call any more: nobody polls until a descriptor tells it to.
TEST_F(RdmaPair, ARequestThatFailsIsNoticedByARankThatIsInNoCall) {
  constexpr int kRetryExceeded = 12;
  set("CTRAN_IB_HCA", "=standin_0");
  standIn->standInVerbsReset(1);
  Ranks ranks;
  ranks.sendOne(0, std::byte{1});
  // What still wakes rank 0 because of what it has sent so far does so within a tenth of a second.
  const auto quiet = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  ranks.until([&] { return std::chrono::steady_clock::now() > quiet; });
  standIn->standInVerbsFail(0, 1, kRetryExceeded);
  std::byte value{2}, got{};
  const MessageName name{kMessageQueue, 0, 1};
  const auto inbound = ranks.b.transport().receive(name, 0, &got, 1, {});
  const auto outbound = ranks.a.transport().send(name, 1, &value, 1, {});
  const auto giveUp = std::chrono::steady_clock::now() + kGuard;
  while (!inbound->ended().holds() && std::chrono::steady_clock::now() < giveUp) {
    standIn->standInVerbsStep();
    ranks.b.poll(1);
    if (isReadable(ranks.a.transport().urgentFd())) ranks.a.poll(1);
  }
  EXPECT_EQ(got, value);
}

TEST_F(RdmaPair, LargeMessagesGoOverSeveralDevicesTogether) {
  Memory source(5 << 20), target(5 << 20);
  Ranks ranks;
  for (uint64_t round = 0; round < 6; ++round) {
    fill(source.span, round);
    const MessageName name{kMessageQueue, 1, round};
    const auto inbound =
        ranks.b.transport().receive(name, 0, target.span.data(), target.span.size(), {});
    const auto outbound =
        ranks.a.transport().send(name, 1, source.span.data(), source.span.size(), {});
    ranks.untilEnded(*inbound);
    ranks.untilEnded(*outbound);
    EXPECT_TRUE(holds(target.span, round));
    ranks.sendOne(round, std::byte{1});
  }
  const std::string path = ranks.a.transport().pathTo(1);
  EXPECT_NE(path.find("standin_0:1"), std::string::npos) << path;
  EXPECT_NE(path.find("standin_1:1"), std::string::npos) << path;
}

}  // namespace
}  // namespace ctran::testing
