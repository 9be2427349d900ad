// RdmaTransport, RdmaMemory and RdmaRemoteBuffer as the seeds use them, on the stand-in for
// libibverbs.

#include <comms/torchcomms/transport/RdmaTransport.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <string>
#include <vector>

namespace torch::comms {
namespace {

/// Before anything asks for a device.
[[maybe_unused]] const bool kStandIn =
    ::getenv("CTRAN_VERBS_LIBRARY") || ::setenv("CTRAN_VERBS_LIBRARY", STAND_IN_VERBS, 1) == 0;

constexpr int kHost = -1;

TEST(RdmaTransport, RunsTheSeedsProgram) {
  // Check platform support
  ASSERT_TRUE(RdmaTransport::supported());

  // Create transport: this process plays both ends.
  auto evbThread = std::make_unique<ScopedEventBaseThread>();
  auto transport = std::make_unique<RdmaTransport>(kHost, evbThread->getEventBase());
  auto peer = std::make_unique<RdmaTransport>(kHost);

  // Bind and get URL; connect to peer
  const std::string myUrl = transport->bind(), peerUrl = peer->bind();
  EXPECT_FALSE(transport->connected());
  auto result = transport->connect(peerUrl);
  EXPECT_EQ(result, commSuccess);
  EXPECT_EQ(peer->connect(myUrl), commSuccess);
  bool isConnected = transport->connected();
  EXPECT_TRUE(isConnected);

  // Register memory
  size_t bufferSize = 1024 * 1024;  // 1MB
  std::vector<char> buffer(bufferSize, 'a'), peerBuffer(bufferSize, 'z');
  RdmaMemory rdmaMemory(buffer.data(), bufferSize, kHost);
  RdmaMemory peerMemory(peerBuffer.data(), bufferSize, kHost);
  void* localKey = rdmaMemory.localKey();
  std::string peerRemoteKey = peerMemory.remoteKey();
  EXPECT_NE(localKey, nullptr);
  EXPECT_NE(localKey, peerMemory.localKey());

  // Create views into memory
  size_t offset = 4096, length = 10000;
  auto localMemView = rdmaMemory.createView(offset, length);
  auto view2 = rdmaMemory.createView(buffer.data() + offset, length);
  EXPECT_EQ(localMemView.data(), view2.data());
  EXPECT_EQ(view2.size(), length);
  bool contains = rdmaMemory.contains(buffer.data() + 1, bufferSize - 1);
  EXPECT_TRUE(contains);
  EXPECT_FALSE(rdmaMemory.contains(buffer.data() + 1, bufferSize));

  // Prepare remote buffer info
  RdmaRemoteBuffer remoteBuffer{.ptr = peerBuffer.data(), .accessKey = peerRemoteKey};

  // Perform RDMA write, wait for completion; receiver waits for data
  auto writeFuture = transport->write(localMemView, remoteBuffer, true);
  EXPECT_EQ(std::move(writeFuture).get(), commSuccess);
  auto waitFuture = peer->waitForWrite();
  result = std::move(waitFuture).get();
  EXPECT_EQ(result, commSuccess);
  EXPECT_EQ(std::string(peerBuffer.data(), length), std::string(length, 'a'));
  EXPECT_EQ(peerBuffer[length], 'z');

  // Batch
  struct Transfer {
    size_t src, size;
    RdmaRemoteBuffer dst;
  };
  std::vector<Transfer> transfers;
  for (size_t i = 0; i < 100; ++i) {
    buffer[i * 1000] = static_cast<char>(i);
    transfers.push_back({i * 1000, 1000, {peerBuffer.data() + i * 1000, 1000, peerRemoteKey}});
  }
  std::vector<RdmaFuture> futures;
  for (const auto& transfer : transfers) {
    auto view = rdmaMemory.createView(transfer.src, transfer.size);
    futures.emplace_back(transport->write(view, transfer.dst, false));
  }
  auto results = collectAll(std::move(futures)).get();
  EXPECT_EQ(results, std::vector<commResult_t>(100, commSuccess));
  EXPECT_EQ(std::memcmp(buffer.data(), peerBuffer.data(), 100'000), 0);

  // And back, by a read
  peerBuffer[17] = 'r';
  EXPECT_EQ(transport->read(rdmaMemory.createMutableView(0, 100), remoteBuffer).get(), commSuccess);
  EXPECT_EQ(buffer[17], 'r');
}

TEST(RdmaTransport, RefusesWithAResult) {
  RdmaTransport transport(kHost);
  std::string why;
  EXPECT_EQ(transport.connect("http://x", &why), commInvalidArgument);
  EXPECT_NE(why.find("no URL"), std::string::npos) << why;
  std::vector<char> buffer(100);
  RdmaMemory memory(buffer.data(), buffer.size());
  const RdmaFuture early = transport.write(memory.createView(), memory.toRemoteBuffer(), false);
  EXPECT_TRUE(early.isReady());
  EXPECT_EQ(early.get(), commInvalidArgument);
  EXPECT_NE(early.error().find("not connected"), std::string::npos) << early.error();
  EXPECT_THROW(memory.createView(size_t{90}, 11), std::exception);
  EXPECT_THROW(memory.createMutableView(buffer.data() - 1, 1), std::exception);
  EXPECT_THROW(memory.createView(SIZE_MAX, 1), std::exception);
}

TEST(RdmaTransport, MemoryGoesWithTransfersUnderWay) {
  RdmaTransport a(kHost), b(kHost);
  ASSERT_EQ(a.connect(b.bind()), commSuccess);
  ASSERT_EQ(b.connect(a.bind()), commSuccess);
  std::vector<char> into(1 << 20);
  RdmaMemory target(into.data(), into.size());
  std::vector<RdmaFuture> futures;
  {
    std::vector<char> from(1 << 20, 'f');
    RdmaMemory memory(from.data(), from.size());
    for (int i = 0; i < 50; ++i) {
      futures.push_back(a.write(memory.createView(), target.toRemoteBuffer(), i == 49));
    }
  }
  EXPECT_EQ(b.waitForWrite().get(), commSuccess);
  EXPECT_EQ(into, std::vector<char>(1 << 20, 'f'));
  for (const commResult_t each : collectAll(futures).get()) EXPECT_EQ(each, commSuccess);
}

TEST(RdmaTransport, FuturesCallBack) {
  RdmaTransport a(kHost), b(kHost);
  ASSERT_EQ(a.connect(b.bind()), commSuccess);
  ASSERT_EQ(b.connect(a.bind()), commSuccess);
  const RdmaFuture never = a.waitForWrite();
  EXPECT_TRUE(never.valid());
  EXPECT_FALSE(never.wait(std::chrono::milliseconds(1)));
  commResult_t told = commSuccess;
  {
    RdmaTransport gone(kHost), other(kHost);
    ASSERT_EQ(gone.connect(other.bind()), commSuccess);
    gone.waitForWrite().onReady([&](commResult_t result) { told = result; });
  }
  EXPECT_EQ(told, commAborted);
}

TEST(RdmaTransport, ACallbackThatWaitsIsTold) {
  std::vector<commResult_t> told;
  RdmaTransport a(kHost), b(kHost);
  ASSERT_EQ(a.connect(b.bind()), commSuccess);
  ASSERT_EQ(b.connect(a.bind()), commSuccess);
  const RdmaFuture never = a.waitForWrite();
  {
    RdmaTransport gone(kHost), other(kHost);
    ASSERT_EQ(gone.connect(other.bind()), commSuccess);
    const RdmaFuture waits = gone.waitForWrite();
    waits.onReady([&, waits](commResult_t) { told = {waits.get(), never.get()}; });
  }
  EXPECT_EQ(told, (std::vector{commAborted, commInvalidArgument}));
}

TEST(RdmaTransport, OwnedMemoryIsRegisteredOnce) {
  const auto owner = std::make_shared<std::vector<char>>(10'000);
  RdmaMemory first(owner->data(), owner->size(), kHost, true, owner);
  RdmaMemory second(owner->data() + 10, 100, kHost, true, owner);
  EXPECT_FALSE(first.reusedRegistration());
  EXPECT_TRUE(second.reusedRegistration());
  EXPECT_EQ(second.localKey(), first.localKey());
  EXPECT_EQ(second.data(), owner->data() + 10);
  EXPECT_EQ(second.createView().size(), 100u);
  EXPECT_FALSE(second.contains(owner->data(), 1));
  EXPECT_THROW(second.createView(owner->data(), 1), std::exception);
  EXPECT_EQ(second.toRemoteBuffer().len, 100u);
  EXPECT_NE(second.remoteKey(), first.remoteKey());
  RdmaMemory third(owner->data(), owner->size());
  EXPECT_FALSE(third.reusedRegistration());
}

}  // namespace
}  // namespace torch::comms
