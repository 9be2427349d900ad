#include "ctran/os/tcp_socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <set>

#include "ctran/base/config.h"
#include "ctran/base/error.h"

namespace ctran {
namespace {

const ConfigInt kLostMillis{
    "CTRAN_TCP_LOST_MILLIS", 10'000,
    "How long another host may be silent, with data or keep-alive probes unanswered, before its "
    "ranks count as lost.",
    1000, 24 * 3600 * 1000};

/// All sockets of the process. A child's copies are replaced by /dev/null right after fork(), under
/// the same numbers, so that closing them later harms nobody.
struct Registry {
  std::mutex mutex;
  std::set<int> fds;
};

Registry& registry() {
  static auto* all = new Registry;  // outlives static destruction
  return *all;
}

void closeInChild() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : registry().fds) ::dup3(nothing, fd, O_CLOEXEC);
  if (nothing >= 0) ::close(nothing);
  registry().fds.clear();
  registry().mutex.unlock();
}

[[maybe_unused]] const int gAtFork = pthread_atfork(
    [] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); }, closeInChild);

void set(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

/// Small messages leave at once, and a silent peer is noticed.
void tune(int fd) {
  const auto lost = static_cast<int>(lostAfter().count());
  const int seconds = std::max(1, lost / 1000);
  const int interval = std::max(1, seconds / 5);
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, std::max(1, seconds / interval - 1));
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, lost);
}

UniqueFd newSocket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw Error(ErrorKind::System, systemError("socket", errno).what(), {}, kMakingSockets);
  // Connections that have ended keep their port for a minute. Whoever makes many communicators
  // would run out of ports if nobody could listen at those.
  set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  return fd;
}

/// The address to listen at: the only one, or that of all interfaces.
NetAddress listeningAddress(const std::vector<NetAddress>& addresses) {
  if (addresses.size() == 1) return addresses[0];
  NetAddress any;
  const auto isV6 = [](const NetAddress& address) { return address.family == 6; };
  any.family = std::any_of(addresses.begin(), addresses.end(), isV6) ? 6 : 4;
  return any;
}

Transfer result(ssize_t n) {
  if (n > 0) return {static_cast<size_t>(n), Transfer::End::None, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return {0, Transfer::End::WouldBlock, 0};
  }
  return {0, Transfer::End::Failed, errno};
}

}  // namespace

std::chrono::milliseconds lostAfter() { return std::chrono::milliseconds(kLostMillis.get()); }

TcpSocket::TcpSocket(UniqueFd fd) : fd_(std::move(fd)) {
  if (!fd_) return;
  std::lock_guard lock(registry().mutex);
  registry().fds.insert(fd_.get());
}

void TcpSocket::close() {
  if (!fd_) return;
  // Closed under the lock: a fork in between would leave the child with the socket.
  std::lock_guard lock(registry().mutex);
  registry().fds.erase(fd_.get());
  const UniqueFd closing = std::move(fd_);
}

NetAddress TcpSocket::remote() const {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (!fd_ || ::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) return {};
  return NetAddress::from(reinterpret_cast<sockaddr*>(&name));
}

size_t TcpSocket::unacknowledged() const {
  int bytes = 0;
  if (!fd_ || ::ioctl(fd_.get(), SIOCOUTQ, &bytes) != 0) return 0;
  return static_cast<size_t>(bytes);
}

TcpSocket listenTcp(std::vector<NetAddress>& addresses) {
  const NetAddress at = listeningAddress(addresses);
  TcpSocket listener(newSocket(at.family == 4 ? AF_INET : AF_INET6));
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
  TcpSocket socket(newSocket(address.family == 4 ? AF_INET : AF_INET6));
  tune(socket.get());
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

TcpSocket acceptTcp(const TcpSocket& listener) {
  while (true) {
    UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      tune(fd.get());
      return TcpSocket(std::move(fd));
    }
    // A caller that has hung up already is no error of ours (accept(2) lists what it may leave).
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      throw Error(ErrorKind::System, systemError("accepting a connection", errno).what(), {},
                  kMakingSockets);
    }
    return {};
  }
}

Transfer readSome(const TcpSocket& socket, std::span<std::byte> to) {
  const ssize_t n = ::recv(socket.get(), to.data(), to.size(), 0);
  if (n == 0) return {0, Transfer::End::Closed, 0};
  return result(n);
}

Transfer writeSome(const TcpSocket& socket, std::span<const std::byte> from) {
  return result(::send(socket.get(), from.data(), from.size(), MSG_NOSIGNAL));
}

}  // namespace ctran
