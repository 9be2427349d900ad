// Registered memory, as the interface of transports promises it, under many orders of events.
#include <gtest/gtest.h>

#include <cstring>

#include "ctran/base/error.h"
#include "tests/unit/support/scheduled_network.h"
#include "tests/unit/support/tcp_ranks.h"

namespace ctran::testing {
namespace {

void untilEnded(ScheduledNetwork& network, const Transfer& transfer) {
  Condition ended = transfer.ended();
  while (!ended.holds()) ASSERT_TRUE(network.step());
}

TEST(OneSided, AnAddIsSeenAfterThePutsBeforeIt) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    ScheduledNetwork network(2);
    network.restart(seed);
    alignas(8) std::byte memory[24] = {};
    const auto registration = network.transport(1).registerMemory(memory);
    const RemoteMemory remote = registration->remote;
    const uint64_t first = 7, second = 11;
    Transport& origin = network.transport(0);
    const auto a = origin.put(1, remote, 0, std::as_bytes(std::span(&first, 1)));
    const auto b = origin.put(1, remote, 8, std::as_bytes(std::span(&second, 1)));
    const auto signal = origin.add(1, remote, 16, 3);
    uint64_t words[3];
    do {
      ASSERT_TRUE(network.step());
      std::memcpy(words, memory, sizeof words);
      if (words[2] != 0) {
        EXPECT_EQ(words[0], first) << "seed " << seed;
        EXPECT_EQ(words[1], second) << "seed " << seed;
        EXPECT_EQ(words[2], 3U);
      }
    } while (words[2] == 0);
    for (const Transfer* each : {a.get(), b.get(), signal.get()}) {
      EXPECT_TRUE(each->ended().holds());
    }
  }
}

TEST(OneSided, GetReadsWhatIsThere) {
  ScheduledNetwork network(2);
  network.restart(1);
  std::byte memory[16], got[4] = {};
  for (size_t i = 0; i < sizeof memory; ++i) memory[i] = static_cast<std::byte>(i);
  const auto registration = network.transport(1).registerMemory(memory);
  const auto get = network.transport(0).get(1, registration->remote, 5, got);
  untilEnded(network, *get);
  EXPECT_EQ(std::memcmp(got, memory + 5, sizeof got), 0);
}

TEST(OneSided, BeyondTheEndIsAnErrorOfTheCall) {
  ScheduledNetwork network(2);
  network.restart(1);
  std::byte memory[16], data[8] = {};
  const auto registration = network.transport(1).registerMemory(memory);
  for (const size_t offset : {size_t{9}, size_t{16}, SIZE_MAX - 3}) {
    EXPECT_THROW(network.transport(0).put(1, registration->remote, offset, data), Error);
    EXPECT_THROW(network.transport(0).get(1, registration->remote, offset, data), Error);
  }
}

TEST(OneSided, MemoryThatIsGoneIsNotWritten) {
  ScheduledNetwork network(2);
  network.restart(1);
  std::unique_ptr<Error> error;
  network.onFailure = [&](int, const Error& what) { error = std::make_unique<Error>(what); };
  std::byte memory[16] = {}, data[8];
  std::memset(data, 1, sizeof data);
  auto registration = network.transport(1).registerMemory(memory);
  const auto put = network.transport(0).put(1, registration->remote, 0, data);
  registration.reset();
  while (network.step()) {
  }
  EXPECT_EQ(memory[0], std::byte{0});
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->ranks(), std::vector<int>{1});
}

class OneSidedOverTcp : public TcpPair {
 protected:
  static FrameHeader about(FrameType type, size_t bytes, uint64_t offset, uint64_t registration) {
    return frame(type, bytes, offset, {kCollectiveQueue, 0, registration});
  }
  void refuses(const FrameHeader& frame, const std::string& why) {
    say(frame, std::vector<std::byte>(frame.bytes, std::byte{9}));
    expectLost(why);
  }

  std::byte memory_[16] = {};
};

TEST_F(OneSidedOverTcp, ReachesNothing) {
  const auto registration = transport_->registerMemory(memory_);
  EXPECT_FALSE(transport_->abilities().remoteRead);
  EXPECT_FALSE(transport_->reaches(1, registration->remote, memory_));
  EXPECT_EQ(transport_->put(1, registration->remote, 0, memory_), nullptr);
  EXPECT_EQ(transport_->get(1, registration->remote, 0, memory_), nullptr);
  EXPECT_THROW(transport_->put(1, registration->remote, 1, memory_), Error);
  try {
    transport_->add(1, registration->remote, 0, 1);
    ADD_FAILURE() << "TCP cannot add";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_NE(std::string(error.what()).find("tcp"), std::string::npos);
  }
}

TEST_F(OneSidedOverTcp, WhatAFailedDeviceLeavesIsWrittenInPlace) {
  const auto registration = transport_->registerMemory(memory_);
  say(about(FrameType::Put, 8, 4, 1), std::vector<std::byte>(8, std::byte{9}));
  until([&] { return memory_[11] == std::byte{9}; });
  EXPECT_EQ(memory_[3], std::byte{0});
  EXPECT_EQ(memory_[12], std::byte{0});
}

TEST_F(OneSidedOverTcp, PutsBeyondRegisteredMemoryAreRefused) {
  const auto registration = transport_->registerMemory(memory_);
  refuses(about(FrameType::Put, 8, 9, 1), "beyond the end of registered memory");
  for (const std::byte value : memory_) EXPECT_EQ(value, std::byte{0});
}

TEST_F(OneSidedOverTcp, GetsBeyondRegisteredMemoryAreRefused) {
  const auto registration = transport_->registerMemory(memory_);
  FrameHeader get = about(FrameType::Get, 0, UINT64_MAX - 3, 1);
  get.count = 8;
  refuses(get, "beyond the end of registered memory");
}

TEST_F(OneSidedOverTcp, MemoryThatWasNeverRegisteredIsRefused) {
  refuses(about(FrameType::Put, 8, 0, 5), "never registered");
}

TEST_F(OneSidedOverTcp, AnswersThatNobodyAskedForAreRefused) {
  refuses(frame(FrameType::Got, 8, 0, {kCollectiveQueue, 3, 0}), "answered what was not asked");
}

TEST_F(OneSidedOverTcp, AnUnknownRailIsRefused) {
  refuses(frame(FrameType::Lost, 0, 0, {kCollectiveQueue, kMaxRails, 0}), "unknown rail");
}

TEST_F(OneSidedOverTcp, PlacingWhatWasNotAskedForIsRefused) {
  refuses(frame(FrameType::Placed, kPlacedPayload), "nobody asked for");
}

}  // namespace
}  // namespace ctran::testing
