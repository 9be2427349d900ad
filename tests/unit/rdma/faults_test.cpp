// RDMA transports on the stand-in: what a kernel's devices do not show when they are asked to.
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

TEST_F(RdmaFaultsTest, APulledCableEndsTheConnection) {
  RdmaPair pair(1 << 20);
  standIn().standInVerbsLink("standin_0", 0);
  int failed = 0;
  for (const RdmaFuture& each : writeALot(pair)) failed += outcomeOf(each).has_value();
  EXPECT_EQ(failed, 40);
  standIn().standInVerbsLink("standin_0", 1);
}

}  // namespace
}  // namespace ctran::testing
