// Futures of folly, which is a stub of its names: the seeds' lines on batches, as they are.

#include <comms/torchcomms/transport/RdmaTransportFolly.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

namespace torch::comms {
namespace {

/// Before anything asks for a device.
[[maybe_unused]] const bool kStandIn =
    ::getenv("CTRAN_VERBS_LIBRARY") || ::setenv("CTRAN_VERBS_LIBRARY", STAND_IN_VERBS, 1) == 0;

struct Pair {
  Pair() {
    EXPECT_EQ(transport->connect(peer->bind()), commSuccess);
    EXPECT_EQ(peer->connect(transport->bind()), commSuccess);
  }
  std::unique_ptr<RdmaTransport> transport = std::make_unique<RdmaTransport>();
  std::unique_ptr<RdmaTransport> peer = std::make_unique<RdmaTransport>();
};

TEST(RdmaTransportFolly, RunsTheSeedsBatch) {
  Pair pair;
  auto& transport = pair.transport;
  std::vector<char> buffer(100'000, 'a'), peerBuffer(100'000, 'z');
  RdmaMemory memory(buffer.data(), buffer.size());
  RdmaMemory peerMemory(peerBuffer.data(), peerBuffer.size());
  struct Transfer {
    size_t src, size;
    RdmaRemoteBuffer dst;
  };
  std::vector<Transfer> transfers;
  for (size_t i = 0; i < 100; ++i) {
    transfers.push_back(
        {i * 1000, 1000, {peerBuffer.data() + i * 1000, 1000, peerMemory.remoteKey()}});
  }

  std::vector<folly::SemiFuture<commResult_t>> futures;

  // Queue multiple writes
  for (const auto& transfer : transfers) {
    auto view = memory.createView(transfer.src, transfer.size);
    futures.emplace_back(transport->write(view, transfer.dst, false));
  }

  // Wait for all
  auto results = folly::collectAll(std::move(futures)).get();

  ASSERT_EQ(results.size(), 100u);
  for (const auto& each : results) EXPECT_EQ(each.value(), commSuccess);
  EXPECT_EQ(peerBuffer, buffer);
}

TEST(RdmaTransportFolly, CollectsFuturesOfTransfersAndTellsOfFailures) {
  Pair pair;
  std::vector<char> buffer(1000);
  RdmaMemory memory(buffer.data(), buffer.size());
  std::vector<RdmaFuture> futures;
  futures.push_back(
      pair.transport->write(memory.createView(), memory.toRemoteBuffer(), /*notify=*/true));
  futures.push_back(pair.transport->write(memory.createView(), {buffer.data(), 10, "none"}, false));
  auto results = folly::collectAll(std::move(futures)).get();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].value(), commSuccess);
  EXPECT_EQ(results[1].value(), commInvalidArgument);

  folly::SemiFuture<commResult_t> notice = pair.peer->waitForWrite();
  EXPECT_EQ(std::move(notice).get(), commSuccess);
}

}  // namespace
}  // namespace torch::comms
