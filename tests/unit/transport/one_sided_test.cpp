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

class OneSidedOverTcp : public TcpPair {};

TEST_F(OneSidedOverTcp, IsRefused) {
  std::byte memory[8];
  EXPECT_FALSE(transport_->abilities().remoteRead);
  try {
    transport_->registerMemory(memory);
    ADD_FAILURE() << "TCP cannot register memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_NE(std::string(error.what()).find("tcp"), std::string::npos);
  }
}

}  // namespace
}  // namespace ctran::testing
