#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ctran/rdma/transport.h"

namespace ctran::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// One end: registered memory, and a transport.
struct RdmaEnd {
  explicit RdmaEnd(size_t bytes = 1 << 16, const RdmaOptions& options = {})
      : memory(bytes),
        registration(RdmaRegistration::of(memory.data(), bytes, -1)),
        transport(std::make_unique<RdmaTransport>(options)) {}

  RdmaSpan span(size_t offset, size_t bytes) {
    return spanOf(registration, memory.data() + offset, bytes);
  }
  RdmaRemote remote(size_t offset = 0, uint64_t bytes = 0) const {
    return {reinterpret_cast<uint64_t>(memory.data()) + offset, bytes, registration->key().text()};
  }

  std::vector<uint8_t> memory;
  std::shared_ptr<RdmaRegistration> registration;
  std::unique_ptr<RdmaTransport> transport;
};

inline void join(RdmaEnd& a, RdmaEnd& b) {
  const std::string urlOfA = a.transport->bind(), urlOfB = b.transport->bind();
  a.transport->connect(urlOfB);
  b.transport->connect(urlOfA);
}

/// Two ends that are connected.
struct RdmaPair {
  explicit RdmaPair(size_t bytes = 1 << 16, const RdmaOptions& options = {})
      : a(bytes, options), b(bytes, options) {
    join(a, b);
  }
  RdmaEnd a, b;
};

/// What the transfer ended with; it ends soon. The stand-in's devices need a push, where a seed
/// chooses their order: they do a step when they are asked.
inline RdmaOutcome outcomeOf(const RdmaFuture& future) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(30);
  const std::shared_ptr<RdmaLoop> loop = RdmaLoop::shared();
  while (!future.waitFor(milliseconds(1))) {
    loop->wake();
    if (std::chrono::steady_clock::now() < deadline) continue;
    ADD_FAILURE() << "a transfer has not ended";
    return Error(ErrorKind::Timeout, "not ended");
  }
  return future.outcome();
}

inline void expectDone(const RdmaFuture& future) {
  const RdmaOutcome outcome = outcomeOf(future);
  EXPECT_FALSE(outcome) << outcome->what();
}

inline void expectFailed(const RdmaFuture& future, ErrorKind kind, const char* text) {
  const RdmaOutcome outcome = outcomeOf(future);
  ASSERT_TRUE(outcome) << "nothing failed";
  EXPECT_EQ(outcome->kind(), kind) << outcome->what();
  EXPECT_NE(std::string(outcome->what()).find(text), std::string::npos) << outcome->what();
}

/// `call` is refused, with `text`.
inline void expectRefused(const std::function<void()>& call, const char* text) {
  try {
    call();
    ADD_FAILURE() << "not refused; expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

inline uint8_t valueAt(size_t index, uint32_t salt) {
  return static_cast<uint8_t>(index * 31 + index / 251 + salt);
}

}  // namespace ctran::testing
