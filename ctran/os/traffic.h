#pragma once

#include <atomic>
#include <cstdint>

namespace ctran {

/// What has been written to sockets so far: calls of the system, and bytes. Relaxed, each beside a
/// system call.
struct Traffic {
  std::atomic<uint64_t> messages{0}, bytes{0};

  void count(int64_t sent) {
    if (sent <= 0) return;
    messages.fetch_add(1, std::memory_order_relaxed);
    bytes.fetch_add(static_cast<uint64_t>(sent), std::memory_order_relaxed);
  }
};

/// By this process, and by this thread of it.
Traffic& traffic();
Traffic& trafficOfThread();

inline void countSent(int64_t sent) {
  traffic().count(sent);
  trafficOfThread().count(sent);
}

}  // namespace ctran
