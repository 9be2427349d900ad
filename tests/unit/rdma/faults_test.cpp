// RDMA transports on the stand-in: what a kernel's devices do not show when they are asked to.
#include <atomic>
#include <mutex>
#include <thread>

#include "ctran/rdma/card.h"
#include "tests/unit/rdma/ends.h"
#include "tests/unit/rdma/fabric.h"
#include "tests/unit/verbs/verbs_fixture.h"

namespace ctran::testing {
namespace {

using namespace ibverbx;

class RdmaFaultsTest : public RdmaFabric {
 protected:
  const StandInVerbs& standIn() { return *StandInVerbs::get(); }
};

std::vector<RdmaFuture> writeALot(RdmaPair& pair) {
  std::vector<RdmaFuture> futures;
  for (int i = 0; i < 40; ++i) {
    futures.push_back(pair.a.transport->write(pair.a.span(0, 300'000), pair.b.remote(), true));
  }
  return futures;
}

TEST_F(RdmaFaultsTest, AnyOrderOfCompletionsKeepsNoticesAfterData) {
  constexpr size_t kBytes = 1 << 20;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    standIn().standInVerbsReset(seed);
    RdmaPair pair(kBytes);
    std::vector<RdmaFuture> writes;
    size_t notices = 0;
    for (size_t i = 0; i < 16; ++i) {
      std::fill_n(pair.a.memory.data() + i * (kBytes / 16), kBytes / 16,
                  static_cast<uint8_t>(seed + i));
    }
    // Large and small ones, with and without notice, into places of their own.
    for (size_t offset = 0, i = 0; offset < kBytes; ++i) {
      const size_t bytes =
          std::min(kBytes - offset, (i * 7 + seed) % 3 ? 1000 + i : size_t{280'000});
      const bool notify = i % 5 == seed % 5 || offset + bytes == kBytes;
      notices += notify;
      writes.push_back(
          pair.a.transport->write(pair.a.span(offset, bytes), pair.b.remote(offset), notify));
      offset += bytes;
    }
    for (size_t i = 0; i < notices; ++i) expectDone(pair.b.transport->waitForWrite());
    ASSERT_EQ(pair.b.memory, pair.a.memory) << "seed " << seed;
    for (const RdmaFuture& each : writes) expectDone(each);
  }
  standIn().standInVerbsReset(0);
}

TEST_F(RdmaFaultsTest, AFailedTransferEndsTheConnectionWithItsCause) {
  for (const uint64_t after : {1, 2, 7, 30}) {
    RdmaPair pair(1 << 20);
    standIn().standInVerbsFail(0, after, IBV_WC_RETRY_EXC_ERR);
    const std::vector<RdmaFuture> futures = writeALot(pair);
    int failed = 0;
    for (const RdmaFuture& each : futures) {
      if (const RdmaOutcome outcome = outcomeOf(each)) {
        EXPECT_EQ(outcome->kind(), ErrorKind::PeerLost) << outcome->what();
        ++failed;
      }
    }
    EXPECT_GT(failed, 0);
    EXPECT_FALSE(pair.a.transport->connected());
    pair.a.registration->waitUntilUnused();
  }
}

TEST_F(RdmaFaultsTest, ADeviceThatIsRemovedIsNamed) {
  RdmaPair pair(1 << 20);
  expectDone(pair.a.transport->write(pair.a.span(0, 8), pair.b.remote(), true));
  expectDone(pair.b.transport->waitForWrite());
  const RdmaFuture waits = pair.b.transport->waitForWrite();
  standIn().standInVerbsRemove("standin_1");
  expectFailed(waits, ErrorKind::System, "standin_1:1 has been removed");
  // The other end has been told, or finds that nobody answers any more.
  const RdmaOutcome other =
      outcomeOf(pair.a.transport->write(pair.a.span(0, 8), pair.b.remote(), true));
  ASSERT_TRUE(other) << "nothing failed";
  EXPECT_TRUE(other->kind() == ErrorKind::System || other->kind() == ErrorKind::PeerLost)
      << other->what();
}

uint32_t qpOf(const RdmaEnd& end, size_t device) {
  return RdmaCard::parse(end.transport->bind()).rails.at(device).qpNums.at(0);
}

/// The timeout of 60 s is not what ends them.
TEST_F(RdmaFaultsTest, AQueueThatOverrunsOrAQueuePairThatFailsEndsItsConnectionAtOnceAndNoOther) {
  struct {
    ibv_event_type event;
    const char* text;
  } const cases[] = {
      {IBV_EVENT_CQ_ERR, "standin_1:1: its completion queue has failed (CQ error)"},
      {IBV_EVENT_QP_FATAL, "standin_1:1: its queue pair has failed (local work queue"},
  };
  for (const auto& each : cases) {
    for (const bool busy : {true, false}) {
      RdmaPair pair(1 << 20), other;
      std::vector<RdmaFuture> futures;
      futures.push_back(pair.a.transport->waitForWrite());
      if (busy) standIn().standInVerbsReset(1);  // transfers take polls
      if (busy) futures = writeALot(pair);
      standIn().standInVerbsBreak(qpOf(pair.a, 1), each.event);
      const auto before = std::chrono::steady_clock::now();
      bool named = false;
      for (const RdmaFuture& future : futures) {
        const RdmaOutcome outcome = outcomeOf(future);
        if (!outcome) continue;  // it was done before
        EXPECT_EQ(outcome->kind(), ErrorKind::System) << outcome->what();
        named |= std::string(outcome->what()).find(each.text) != std::string::npos;
      }
      EXPECT_TRUE(named) << each.text;
      EXPECT_LT(std::chrono::steady_clock::now() - before, seconds(20));
      expectFailed(pair.a.transport->write(pair.a.span(0, 8), pair.b.remote(), false),
                   ErrorKind::System, each.text);
      expectDone(other.a.transport->write(other.a.span(0, 8), other.b.remote(), true));
      expectDone(other.b.transport->waitForWrite());
      standIn().standInVerbsReset(0);
    }
  }
}

TEST_F(RdmaFaultsTest, AReceiverThatStaysNotReadyIsAPeerThatDoesNotAnswer) {
  RdmaPair pair;
  standIn().standInVerbsFail(0, 1, IBV_WC_RNR_RETRY_EXC_ERR);
  expectFailed(pair.a.transport->write(pair.a.span(0, 8), pair.b.remote(), true),
               ErrorKind::PeerLost, "the peer has not answered");
}

TEST_F(RdmaFaultsTest, APulledCableEndsTheConnection) {
  RdmaPair pair(1 << 20);
  standIn().standInVerbsLink("standin_0", 0);
  int failed = 0;
  for (const RdmaFuture& each : writeALot(pair)) {
    if (const RdmaOutcome outcome = outcomeOf(each)) {
      ++failed;
      EXPECT_EQ(outcome->kind(), ErrorKind::PeerLost);
      EXPECT_NE(std::string(outcome->what()).find("standin_0:1 is down"), std::string::npos)
          << outcome->what();
    }
  }
  EXPECT_EQ(failed, 40);
  standIn().standInVerbsLink("standin_0", 1);
}

/// Keeps a loop busy, which then drives nothing.
struct Blocker : RdmaLoop::Driven {
  int service() override {
    isBlocking = true;
    const std::lock_guard lock(mutex);
    return -1;
  }
  std::mutex mutex;
  std::atomic<bool> isBlocking{false};
};

/// Small writes leave with their work request: what is in their memory later does not.
TEST_F(RdmaFaultsTest, SmallWritesOfTheHostAreInlined) {
  for (const size_t bytes : {size_t{8}, size_t{64}, size_t{4096}}) {
    standIn().standInVerbsReset(3);
    const auto loop = std::make_shared<RdmaLoop>();
    RdmaPair pair(1 << 16, {loop});
    const auto blocker = std::make_shared<Blocker>();
    std::unique_lock blocks(blocker->mutex);
    loop->add(blocker);
    loop->wake();
    while (!blocker->isBlocking) std::this_thread::yield();
    std::fill_n(pair.a.memory.data(), bytes, uint8_t{1});
    const RdmaFuture written =
        pair.a.transport->write(pair.a.span(0, bytes), pair.b.remote(), true);
    std::fill_n(pair.a.memory.data(), bytes, uint8_t{2});
    blocks.unlock();
    expectDone(written);
    EXPECT_EQ(pair.b.memory[0], bytes <= 64 ? 1 : 2) << bytes;
    loop->remove(blocker);
  }
  standIn().standInVerbsReset(0);
}

}  // namespace
}  // namespace ctran::testing
