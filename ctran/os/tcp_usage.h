#pragma once

#include <cstdint>
#include <optional>

#include "ctran/os/socket.h"

namespace ctran {

/// How a TCP connection was used for sending, as the kernel has counted since it was made.
struct TcpUsage {
  uint64_t acknowledged = 0;  ///< bytes that the peer's host has got
  int64_t busyNanos = 0;      ///< data was on its way, and not for want of room at the receiver
};

/// Nothing where the kernel does not say. A system call.
std::optional<TcpUsage> tcpUsage(const Socket& socket);

/// For how long the peer's host has said nothing, while it should acknowledge what was sent, and
/// sent again; 0 if there is no such thing, or the kernel does not say.
int64_t silentNanos(const Socket& socket);

}  // namespace ctran
