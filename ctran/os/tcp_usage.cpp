#include "ctran/os/tcp_usage.h"

#include <linux/tcp.h>  // netinet/tcp.h, which does not go with it, knows less of tcp_info
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace ctran {

std::optional<TcpUsage> tcpUsage(const Socket& socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  constexpr size_t kNeeded = offsetof(tcp_info, tcpi_rwnd_limited) + sizeof info.tcpi_rwnd_limited;
  if (length < kNeeded) return std::nullopt;  // an older kernel
  const uint64_t micros =
      info.tcpi_busy_time - std::min(info.tcpi_rwnd_limited, info.tcpi_busy_time);
  return TcpUsage{info.tcpi_bytes_acked, static_cast<int64_t>(micros) * 1000};
}

int64_t silentNanos(const Socket& socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  if (info.tcpi_unacked == 0 || info.tcpi_retransmits == 0) return 0;
  return static_cast<int64_t>(info.tcpi_last_ack_recv) * 1'000'000;
}

}  // namespace ctran
