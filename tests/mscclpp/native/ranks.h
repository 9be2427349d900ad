// Ranks to test with: processes, or threads where the race detector looks.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/core.hpp"
#include "mscclpp/memory_channel.hpp"
#include "mscclpp/port_channel.hpp"
#include "tests/unit/support/ranks.h"

namespace mscclpp::testing {

using ctran::testing::ForkedRanks;
using ctran::testing::kThreadSanitizer;
using ctran::testing::Shared;

/// Calls `body` on `size` ranks with a communicator each: processes, but for race-detector builds.
void runRanks(int size, const std::function<void(Communicator&)>& body);

/// The same, where each rank is on a host of its own; in race-detector builds all are on this one.
void runHosts(int size, const std::function<void(Communicator&)>& body);

/// The connection to each other rank; an empty one to this rank.
std::vector<Connection> connectAll(Communicator& communicator,
                                   const EndpointConfig& config = Transport::CudaIpc);

/// The memory that each rank passes, in the order of ranks.
std::vector<RegisteredMemory> exchange(Communicator& communicator, const RegisteredMemory& own);

/// Not owned: a communicator of `runRanks` for those who share theirs.
inline std::shared_ptr<Communicator> borrowed(Communicator& communicator) {
  return {&communicator, [](Communicator*) {}};
}

/// All-gather of `bytes` per rank by thread p and the proxy of peer p.
void gatherByProxy(DeviceHandle<PortChannel>* handles, int peers, int rank, size_t bytes);

/// A value that depends on who wrote it, where, and in which round.
inline uint32_t pattern(int rank, size_t position, int round) {
  return static_cast<uint32_t>(rank + 1) * 1'000'003U + static_cast<uint32_t>(position) * 7919U +
         static_cast<uint32_t>(round) * 104'729U;
}

/// What `body` throws, as text; fails the test if it throws nothing.
std::string errorOf(const std::function<void()>& body);

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace mscclpp::testing
