// RDMA transports between two ends of one process: what holds on every device.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

#include "tests/unit/rdma/ends.h"
#include "tests/unit/rdma/fabric.h"

namespace ctran::testing {
namespace {

class RdmaTransportTest : public RdmaFabric {};

void fill(RdmaEnd& end, uint32_t salt) {
  for (size_t i = 0; i < end.memory.size(); ++i) end.memory[i] = valueAt(i, salt);
}

/// [offset, offset + bytes) of `end` are what the other end had `shift` bytes further on; all else
/// is zero.
void expectOnly(const RdmaEnd& end, size_t offset, size_t bytes, ptrdiff_t shift, uint32_t salt) {
  const auto isRight = [&](size_t i) {
    const bool inside = i >= offset && i < offset + bytes;
    return end.memory[i] == (inside ? valueAt(i + shift, salt) : 0);
  };
  size_t right = 0;
  while (right < end.memory.size() && isRight(right)) ++right;
  ASSERT_EQ(right, end.memory.size()) << "the first that is wrong";
}

TEST_F(RdmaTransportTest, IsSupported) {
  std::string why;
  EXPECT_TRUE(RdmaTransport::supported(&why)) << why;
}

TEST_F(RdmaTransportTest, AWriteIsInPlaceWhenItsNoticeComes) {
  const size_t most = (2 << 20) + 4096;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{8}, size_t{4097}, size_t{262'144},
                             size_t{262'145}, size_t{(2 << 20) + 3}}) {
    RdmaPair pair(most);
    fill(pair.a, 5);
    const RdmaFuture waits = pair.b.transport->waitForWrite();
    const RdmaFuture writes =
        pair.a.transport->write(pair.a.span(13, bytes), pair.b.remote(1000), true);
    expectDone(waits);
    expectOnly(pair.b, 1000, bytes, 13 - 1000, 5);
    expectDone(writes);
  }
}

TEST_F(RdmaTransportTest, AWriteWithoutNoticeIsInPlaceWhenItIsReady) {
  RdmaPair pair;
  fill(pair.a, 1);
  const RdmaFuture waits = pair.b.transport->waitForWrite();
  expectDone(pair.a.transport->write(pair.a.span(0, 5000), pair.b.remote(60, 5000), false));
  expectOnly(pair.b, 60, 5000, -60, 1);
  EXPECT_FALSE(waits.isReady());
}

TEST_F(RdmaTransportTest, AReadBringsTheDataOfThePeer) {
  for (const size_t bytes : {size_t{1}, size_t{8}, size_t{70'000}, size_t{1 << 20}}) {
    RdmaPair pair(1 << 20);
    fill(pair.b, 9);
    expectDone(pair.a.transport->read(pair.a.span(0, bytes), pair.b.remote(0)));
    expectOnly(pair.a, 0, bytes, 0, 9);
  }
}

TEST_F(RdmaTransportTest, ANoticeComesAfterTheDataOfAllWritesBefore) {
  constexpr size_t kPart = 300'000, kParts = 6;
  RdmaPair pair(kPart * kParts + 8);
  for (uint32_t round = 1; round <= 5; ++round) {
    fill(pair.a, round);
    std::vector<RdmaFuture> writes;
    for (size_t i = 0; i < kParts; ++i) {
      writes.push_back(
          pair.a.transport->write(pair.a.span(i * kPart, kPart), pair.b.remote(i * kPart), false));
    }
    writes.push_back(pair.a.transport->write(pair.a.span(kParts * kPart, 8),
                                             pair.b.remote(kParts * kPart), true));
    expectDone(pair.b.transport->waitForWrite());
    ASSERT_EQ(pair.b.memory, pair.a.memory) << "round " << round;
    for (const RdmaFuture& each : writes) expectDone(each);
  }
}

TEST_F(RdmaTransportTest, EachNoticeServesOneWait) {
  RdmaPair pair;
  std::vector<RdmaFuture> waits;
  for (int i = 0; i < 600; ++i) {
    expectDone(pair.a.transport->write(pair.a.span(0, 8), pair.b.remote(), true));
  }
  for (int i = 0; i < 601; ++i) waits.push_back(pair.b.transport->waitForWrite());
  for (int i = 0; i < 600; ++i) expectDone(waits[i]);
  EXPECT_FALSE(waits[600].isReady());
}

TEST_F(RdmaTransportTest, ThreadsShareATransportAndBothDirections) {
  constexpr size_t kThreads = 4, kWrites = 250, kBytes = 1024;
  RdmaPair pair(kThreads * kWrites * kBytes / 16);
  const size_t places = pair.a.memory.size() / kBytes / kThreads;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      RdmaEnd& from = t % 2 ? pair.b : pair.a;
      RdmaEnd& to = t % 2 ? pair.a : pair.b;
      std::vector<RdmaFuture> futures;
      for (size_t i = 0; i < kWrites; ++i) {
        const size_t offset = (t * places + i % places) * kBytes;
        const RdmaSpan span = from.span(offset, kBytes);
        if (i < places)
          std::fill_n(from.memory.data() + offset, kBytes, static_cast<uint8_t>(t + 1));
        futures.push_back(from.transport->write(span, to.remote(offset), i % 2 == 0));
        futures.push_back(to.transport->waitForWrite());
        if (i % 2) futures.pop_back();
      }
      // Of the waits that were asked for as many become ready as notices come.
      for (size_t i = 0; i < futures.size(); ++i) {
        if (i % 3 != 1) expectDone(futures[i]);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  for (size_t t = 0; t < kThreads; ++t) {
    const RdmaEnd& to = t % 2 ? pair.a : pair.b;
    for (size_t i = 0; i < places * kBytes; ++i) {
      ASSERT_EQ(to.memory[t * places * kBytes + i], t + 1);
    }
  }
}

TEST_F(RdmaTransportTest, WhatCannotBeIsRefusedAndChangesNothing) {
  RdmaPair pair(8192);
  RdmaEnd alone(8192);
  expectRefused([&] { alone.transport->write(alone.span(0, 8), pair.b.remote(), false); },
                "not connected");
  expectRefused([&] { alone.transport->waitForWrite(); }, "not connected");
  expectRefused([&] { alone.transport->connect("tcp://here"); }, "no URL");
  expectRefused([&] { pair.a.transport->connect(pair.b.transport->bind()); }, "connected before");
  expectRefused([&] { pair.a.span(8000, 193); }, "do not lie in");
  expectRefused([&] { pair.a.span(8193, 0); }, "do not lie in");
  expectRefused([&] { pair.a.transport->write({}, pair.b.remote(), false); }, "no view");
  RdmaSpan forged = pair.a.span(0, 10);
  forged.bytes = 10'000;
  expectRefused([&] { pair.a.transport->write(forged, pair.b.remote(), false); }, "do not lie in");
  const RdmaSpan span = pair.a.span(0, 100);
  expectRefused([&] { pair.a.transport->write(span, pair.b.remote(8100), false); }, "do not fit");
  expectRefused([&] { pair.a.transport->read(span, pair.b.remote(0, 99)); }, "do not fit");
  RdmaRemote remote = pair.b.remote();
  remote.address -= 1;
  expectRefused([&] { pair.a.transport->write(span, remote, false); }, "do not fit");
  remote = pair.b.remote();
  remote.key = "key";
  expectRefused([&] { pair.a.transport->write(span, remote, false); }, "no key");
  RdmaKey key = RdmaKey::parse(pair.b.remote().key);
  key.token ^= 1;
  remote.key = key.text();
  expectRefused([&] { pair.a.transport->write(span, remote, false); }, "not of the process");
  expectDone(pair.a.transport->write(span, pair.b.remote(), false));
}

TEST_F(RdmaTransportTest, AKeyOfMemoryThatIsReleasedEndsTheConnection) {
  RdmaPair pair;
  const RdmaRemote remote = pair.b.remote();
  pair.b.registration.reset();
  expectFailed(pair.a.transport->write(pair.a.span(0, 8), remote, false), ErrorKind::System,
               "has refused a transfer");
  EXPECT_FALSE(pair.a.transport->connected());
  expectFailed(pair.a.transport->waitForWrite(), ErrorKind::System, "has refused a transfer");
}

TEST_F(RdmaTransportTest, EndsWithTransfersUnderWay) {
  for (int round = 0; round < 10; ++round) {
    RdmaPair pair(1 << 20);
    std::vector<RdmaFuture> futures{pair.a.transport->waitForWrite()};
    for (int i = 0; i < 20 * round; ++i) {
      futures.push_back(
          pair.a.transport->write(pair.a.span(0, 300'000), pair.b.remote(), i % 3 == 0));
    }
    pair.a.transport.reset();
    pair.a.registration->waitUntilUnused();
    for (const RdmaFuture& each : futures) {
      EXPECT_TRUE(each.isReady());
      if (const RdmaOutcome outcome = outcomeOf(each)) {
        EXPECT_EQ(outcome->kind(), ErrorKind::Aborted) << outcome->what();
      }
    }
    EXPECT_TRUE(outcomeOf(futures.front()));
  }
}

TEST_F(RdmaTransportTest, MemoryIsHeldUntilItsTransfersHaveEnded) {
  RdmaPair pair(1 << 20);
  fill(pair.a, 3);
  const RdmaFuture future =
      pair.a.transport->write(pair.a.span(0, 1 << 20), pair.b.remote(), false);
  pair.a.registration->waitUntilUnused();
  EXPECT_TRUE(future.waitFor(seconds(1)));
  pair.a.registration.reset();
  expectDone(future);
  EXPECT_EQ(pair.b.memory, pair.a.memory);
}

TEST_F(RdmaTransportTest, ACallbackIsCalledOnceEvenIfItEndsTheTransport) {
  RdmaPair pair;
  std::atomic<int> calls{0};
  const RdmaFuture future = pair.a.transport->write(pair.a.span(0, 100), pair.b.remote(), false);
  future.onReady([&](const RdmaOutcome& outcome) {
    EXPECT_FALSE(outcome);
    pair.a.transport.reset();
    ++calls;
  });
  const auto deadline = std::chrono::steady_clock::now() + seconds(30);
  while (calls == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(calls, 1);
}

TEST_F(RdmaTransportTest, ACallbackIsNotLetToWaitForWhatHasNotEnded) {
  RdmaPair pair;
  const RdmaFuture never = pair.b.transport->waitForWrite();
  const RdmaFuture future = pair.a.transport->write(pair.a.span(0, 100), pair.b.remote(), false);
  std::promise<void> called;
  future.onReady([&](const RdmaOutcome&) {
    EXPECT_FALSE(future.outcome());
    EXPECT_TRUE(future.waitFor(seconds(0)));
    EXPECT_FALSE(never.waitFor(seconds(600)));
    const RdmaOutcome refused = never.outcome();
    EXPECT_TRUE(refused && refused->kind() == ErrorKind::InvalidArgument);
    called.set_value();
  });
  const auto deadline = std::chrono::steady_clock::now() + seconds(30);
  const auto isCalled = [&, told = called.get_future()] {
    return told.wait_for(milliseconds(1)) == std::future_status::ready;
  };
  bool was = false;
  while (!(was = isCalled()) && std::chrono::steady_clock::now() < deadline) {
    RdmaLoop::shared()->wake();
  }
  ASSERT_TRUE(was);
  EXPECT_FALSE(never.waitFor(milliseconds(1))) << "who is in no callback waits";
}

TEST_F(RdmaTransportTest, AForkedChildIsNotLetToWaitForItsParents) {
  RdmaPair pair;
  const RdmaFuture done = pair.a.transport->write(pair.a.span(0, 100), pair.b.remote(), false);
  expectDone(done);
  const RdmaFuture never = pair.b.transport->waitForWrite();
  std::ranges::fill(pair.a.memory, 42);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    if (pair.a.memory[50] != 42) ::_exit(2);
    bool told = false;
    never.onReady([&](const RdmaOutcome& refused) { told = refused.has_value(); });
    const RdmaOutcome refused = never.outcome();
    const bool good = !done.outcome() && told && refused &&
                      std::string(refused->what()).find("forked") != std::string::npos &&
                      !never.waitFor(seconds(600));
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(RdmaTransportTest, ALoopOfItsOwnServesSeveral) {
  RdmaOptions options;
  options.loop = std::make_shared<RdmaLoop>();
  RdmaPair first(4096, options), second(4096, options);
  options.loop.reset();
  for (RdmaPair* pair : {&first, &second}) {
    expectDone(pair->a.transport->write(pair->a.span(0, 8), pair->b.remote(), true));
    expectDone(pair->b.transport->waitForWrite());
  }
}

TEST_F(RdmaTransportTest, APeerThatHasGoneIsNoticedByWhoWaits) {
  RdmaPair pair;
  expectDone(pair.a.transport->write(pair.a.span(0, 8), pair.b.remote(), true));
  const RdmaFuture waits = pair.a.transport->waitForWrite();
  EXPECT_FALSE(waits.waitFor(milliseconds(1500))) << "alive";
  pair.b.transport.reset();
  expectFailed(waits, ErrorKind::PeerLost, "has not answered");
  expectFailed(pair.a.transport->write(pair.a.span(0, 8), pair.b.remote(), false),
               ErrorKind::PeerLost, "has not answered");
}

TEST_F(RdmaTransportTest, MemoryThatIsOwnedIsRegisteredOnce) {
  auto owner = std::make_shared<std::vector<uint8_t>>(10'000);
  bool found = true;
  const auto whole = RdmaRegistration::findOrMake(owner->data(), 10'000, -1, {owner}, found);
  EXPECT_FALSE(found);
  const auto part = RdmaRegistration::findOrMake(owner->data() + 100, 9'900, -1, {owner}, found);
  EXPECT_TRUE(found);
  EXPECT_EQ(part, whole);
  EXPECT_TRUE(part->isKept());
  const auto beyond = RdmaRegistration::findOrMake(owner->data() + 100, 9'901, -1, {owner}, found);
  EXPECT_FALSE(found);
}

TEST_F(RdmaTransportTest, TheKeyOfAPartIsForThatAlone) {
  RdmaPair pair(8192);
  auto owner = std::make_shared<std::vector<uint8_t>>(10'000);
  RdmaExtent whole(owner->data(), 10'000, -1, {owner}, true);
  RdmaExtent part(owner->data() + 100, 50, -1, {owner}, true);
  EXPECT_TRUE(part.isReused());
  EXPECT_EQ(part.registration(), whole.registration());
  EXPECT_TRUE(part.contains(owner->data() + 149, 1));
  EXPECT_FALSE(part.contains(owner->data() + 150, 1));
  expectRefused([&] { spanOf(part, owner->data(), 50); }, "do not lie in");
  const RdmaKey key = part.key();
  EXPECT_EQ(key.address, whole.key().address + 100);
  EXPECT_EQ(key.bytes, 50u);
  EXPECT_EQ(part.key().text(), key.text()) << "it is registered once";
  RdmaRemote remote{key.address, 0, key.text()};
  pair.a.memory[0] = 7;
  expectDone(pair.a.transport->write(pair.a.span(0, 1), remote, false));
  EXPECT_EQ((*owner)[100], 7);
  // Who forges the text has a key that the device refuses.
  RdmaKey forged = key;
  forged.address = whole.key().address;
  forged.bytes = 10'000;
  remote = {forged.address, 0, forged.text()};
  expectFailed(pair.a.transport->write(pair.a.span(0, 1), remote, false), ErrorKind::System,
               "has refused a transfer");
  EXPECT_EQ((*owner)[0], 0);
}

TEST_F(RdmaTransportTest, APartThatItsOwnerHasGivenUpHasNoKey) {
  auto owner = std::make_shared<std::vector<uint8_t>>(10'000);
  bool keeps = true;
  const RdmaOwner fickle{owner, [&] { return keeps; }};
  RdmaExtent whole(owner->data(), 10'000, -1, fickle, true);
  RdmaExtent part(owner->data() + 100, 50, -1, fickle, true);
  EXPECT_TRUE(part.isReused());
  keeps = false;
  expectRefused([&] { part.key(); }, "not what was registered");
}

TEST_F(RdmaTransportTest, MemoryThatItsOwnerHasGivenUpIsRegisteredAnew) {
  auto owner = std::make_shared<std::vector<uint8_t>>(10'000);
  bool keeps = true, found = true;
  const RdmaOwner fickle{owner, [&] { return keeps; }};
  const auto before = RdmaRegistration::findOrMake(owner->data(), 10'000, -1, fickle, found);
  keeps = false;
  EXPECT_FALSE(before->isKept());
  const auto after = RdmaRegistration::findOrMake(owner->data(), 10'000, -1, {owner}, found);
  EXPECT_FALSE(found);
  EXPECT_NE(before, after);
}

TEST_F(RdmaTransportTest, MemoryThatNobodyOwnsIsRegisteredEachTime) {
  std::vector<uint8_t> memory(10'000);
  const auto first = RdmaRegistration::of(memory.data(), memory.size(), -1);
  bool found = true;
  const auto second = RdmaRegistration::findOrMake(memory.data(), memory.size(), -1, {}, found);
  EXPECT_FALSE(found);
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace ctran::testing
