#include "ctran/os/tcp_socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "ctran/base/config.h"
#include "ctran/base/error.h"

namespace ctran {
namespace {

const ConfigInt kLostMillis{
    "CTRAN_TCP_LOST_MILLIS", 10'000,
    "How long another host may be silent, with data or keep-alive probes unanswered, before its "
    "ranks count as lost.",
    1000, 24 * 3600 * 1000};

const ConfigBytes kTcpRate{
    "CTRAN_TCP_RATE", 0,
    "The most bytes a second that this process sends over each connection, to "
    "share a network; 0: no "
    "limit."};

void set(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

/// Small messages leave at once, and a silent peer is noticed.
void tuneSocket(int fd) {
  const auto lost = static_cast<int>(lostAfter().count());
  const int seconds = std::max(1, lost / 1000);
  const int interval = std::max(1, seconds / 5);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, std::max(1, seconds / interval - 1));
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, lost);
  if (const size_t rate = kTcpRate.get(); rate > 0) {
    set(fd, SOL_SOCKET, SO_MAX_PACING_RATE,
        static_cast<int>(std::min<size_t>(rate, std::numeric_limits<int>::max())));
  }
}

TcpSocket newTcpSocket(int version) {
  TcpSocket socket = newSocket(version == 4 ? AF_INET : AF_INET6);
  // Connections that have ended keep their port for a minute. Whoever makes many communicators
  // would run out of ports if nobody could listen at those.
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  return socket;
}

/// The address to listen at: the only one, or that of all interfaces.
NetAddress listeningAddress(const std::vector<NetAddress>& addresses) {
  if (addresses.size() == 1) return addresses[0];
  NetAddress any;
  const auto isV6 = [](const NetAddress& address) { return address.family == 6; };
  any.family = std::any_of(addresses.begin(), addresses.end(), isV6) ? 6 : 4;
  return any;
}

}  // namespace

std::chrono::milliseconds lostAfter() { return std::chrono::milliseconds(kLostMillis.get()); }

TcpSocket listenTcp(std::vector<NetAddress>& addresses) {
  const NetAddress at = listeningAddress(addresses);
  TcpSocket listener = newTcpSocket(at.family);
  if (at.family == 6) set(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, addresses.size() == 1);
  sockaddr_storage name;
  socklen_t length = at.to(name);
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) {
    throw systemError("bind to " + at.text(), errno);
  }
  if (::listen(listener.get(), SOMAXCONN) != 0) throw systemError("listen", errno);
  length = sizeof name;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
    throw systemError("getsockname", errno);
  }
  const uint16_t port = NetAddress::from(reinterpret_cast<sockaddr*>(&name)).port;
  for (NetAddress& address : addresses) address.port = port;
  return listener;
}

TcpSocket beginConnect(const NetAddress& address, const NetAddress& from) {
  TcpSocket socket = newTcpSocket(address.family);
  tuneSocket(socket.get());
  sockaddr_storage name;
  if (from.family != 0) {
    NetAddress any = from;
    any.port = 0;
    set(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    const socklen_t length = any.to(name);
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), length) != 0) {
      throw systemError("bind to " + any.text(), errno);
    }
  }
  const socklen_t length = address.to(name);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&name), length) != 0 &&
      errno != EINPROGRESS) {
    throw systemError("connect to " + address.text(), errno);
  }
  return socket;
}

bool refuse(const std::vector<NetAddress>& addresses, std::chrono::milliseconds patience) {
  const auto refuses = [&](const NetAddress& address) {
    const TcpSocket socket = newTcpSocket(address.family);
    sockaddr_storage name;
    const socklen_t length = address.to(name);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0) {
      return false;
    }
    if (errno != EINPROGRESS) return errno == ECONNREFUSED;
    pollfd connecting{socket.get(), POLLOUT, 0};
    if (::poll(&connecting, 1, static_cast<int>(patience.count())) <= 0) return false;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error == ECONNREFUSED;
  };
  return !addresses.empty() && std::all_of(addresses.begin(), addresses.end(), refuses);
}

TcpSocket acceptTcp(const TcpSocket& listener) {
  TcpSocket socket = acceptOne(listener);
  if (socket) tuneSocket(socket.get());
  return socket;
}

}  // namespace ctran
