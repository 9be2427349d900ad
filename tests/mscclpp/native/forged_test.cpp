// What members say of themselves and of others' memory, as no honest one would.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "mscclpp/csrc/names.h"
#include "tests/mscclpp/native/ranks.h"

namespace mscclpp::testing {
namespace {

/// Rank 1, of another host, sends rank 0 back what rank 0 has sent, as that of the process of rank
/// 0's host that has the token; 0: of rank 0 itself.
void testForged(bool isEndpoint, uint64_t token, const std::string& why) {
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
      constexpr size_t kAt = offsetof(MemoryName, owner) + offsetof(ProcessName, token);
      if (token != 0) std::memcpy(name.data() + kAt, &token, sizeof token);
      bootstrap->send(name, 0, 0);
    }
  });
}

TEST(Forged, WhatARankOfAnotherHostSaysOfThisOneCountsForNothing) {
  if (kThreadSanitizer) GTEST_SKIP() << "the ranks are on one host";
  for (const uint64_t token : {0, 17}) {  // rank 0's own, and another one
    testForged(false, token, "is on another host, or another user's, and has no address here");
    testForged(true, token, "the other end of a CudaIpc connection is on another host");
  }
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
