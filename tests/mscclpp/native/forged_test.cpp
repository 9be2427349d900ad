// What members say of themselves and of others' memory, as no honest one would.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "mscclpp/csrc/names.h"
#include "tests/mscclpp/native/ranks.h"

namespace mscclpp::testing {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Rank 1, of another host, sends rank 0 back what rank 0 has sent, as that of another process of
/// rank 0's host.
void testForged(bool isEndpoint, const std::string& why) {
  runHosts(2, [&](Communicator& communicator) {
    const auto bootstrap = communicator.bootstrap();
    if (bootstrap->getRank() == 0) {
      std::vector<char> data(100);
      const Transport transport = Transport::CudaIpc;
      const auto own = communicator.registerMemory(data.data(), data.size(), transport);
      const Endpoint endpoint = communicator.context()->createEndpoint(transport);
      bootstrap->send(isEndpoint ? endpoint.serialize() : own.serialize(), 1, 0);
      const std::string error = errorOf([&] {
        if (isEndpoint) {
          communicator.connect(communicator.context()->createEndpoint(transport), 1).get();
        } else {
          communicator.recvMemory(1).get().data();
        }
      });
      EXPECT_TRUE(has(error, why)) << error;
    } else {
      std::vector<char> name;
      bootstrap->recv(name, 0, 0);
      constexpr uint64_t kToken = 17;
      constexpr size_t kAt = offsetof(MemoryName, owner) + offsetof(ProcessName, token);
      std::memcpy(name.data() + kAt, &kToken, sizeof kToken);
      bootstrap->send(name, 0, 0);
    }
  });
}

TEST(Forged, WhatARankOfAnotherHostSaysOfThisOneCountsForNothing) {
  if (kThreadSanitizer) GTEST_SKIP() << "the ranks are on one host";
  testForged(false, "is on another host, or another user's, and has no address here");
  testForged(true, "the other end of a CudaIpc connection is on another host");
}

TEST(Forged, OwnMemoryIsKnownByItsRegistrationAlone) {
  runRanks(2, [](Communicator& communicator) {
    const auto bootstrap = communicator.bootstrap();
    if (bootstrap->getRank() == 1) {  // sends back what it gets, with another address
      for (int i = 0; i < 2; ++i) {
        std::vector<char> name;
        bootstrap->recv(name, 0, 0);
        const uint64_t address = 4096;
        std::memcpy(name.data() + offsetof(MemoryName, address), &address, sizeof address);
        bootstrap->send(name, 0, 0);
      }
      return;
    }
    std::vector<char> data(100);
    auto own = communicator.registerMemory(data.data(), data.size(), Transport::CudaIpc);
    bootstrap->send(own.serialize(), 1, 0);
    EXPECT_EQ(communicator.recvMemory(1).get().data(), data.data());
    const std::vector<char> name = own.serialize();
    own = RegisteredMemory();
    bootstrap->send(name, 1, 0);
    const std::string error = errorOf([&] { communicator.recvMemory(1).get(); });
    EXPECT_TRUE(has(error, "is not registered, or not any more")) << error;
  });
}

TEST(Forged, NamesOfThisProcessComeFromNobodyElse) {
  auto context = Context::create();
  std::vector<char> data(100), name;
  name = context->registerMemory(data.data(), data.size(), Transport::CudaIpc).serialize();
  const uint64_t token = 17;
  constexpr size_t kAt = offsetof(MemoryName, owner) + offsetof(ProcessName, token);
  std::memcpy(name.data() + kAt, &token, sizeof token);
  const std::string error = errorOf([&] { RegisteredMemory::deserialize(name); });
  EXPECT_TRUE(has(error, "names this process, and is not from it")) << error;
}

TEST(Forged, MoreThanANameHasIsRefused) {
  runRanks(2, [](Communicator& communicator) {
    const auto bootstrap = communicator.bootstrap();
    constexpr size_t kLong = (3 << 20) + 5;  // comes in several pieces
    if (bootstrap->getRank() == 1) {
      uint64_t bytes = 1 << 30;
      bootstrap->send(&bytes, sizeof bytes, 0, 0);
      bootstrap->send(std::vector<char>(kLong, 'x'), 0, 1);
      return;
    }
    const std::string error = errorOf([&] { communicator.recvMemory(1).get(); });
    EXPECT_TRUE(has(error, "rank 1 announces a message of 1073741824 bytes")) << error;
    std::vector<char> data;
    bootstrap->recv(data, 1, 1);
    EXPECT_EQ(data, std::vector<char>(kLong, 'x'));
  });
}

}  // namespace
}  // namespace mscclpp::testing
