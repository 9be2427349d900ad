#include "ctran/os/socket.h"

#include <linux/sockios.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>

#include "ctran/base/error.h"
#include "ctran/os/traffic.h"

namespace ctran {
namespace {

/// All sockets of the process. In a child they are replaced by `nothing` right after fork(), under
/// the same numbers, so that closing them later harms nobody. That needs no descriptor that is not
/// there, and no file.
struct SocketRegistry {
  std::mutex mutex;
  std::set<int> fds;
  int nothing = -1;  // since the first socket
};

SocketRegistry& socketRegistry() {
  static auto* all = new SocketRegistry;  // outlives static destruction
  return *all;
}

void closeInChild() {
  for (const int fd : socketRegistry().fds) ::dup3(socketRegistry().nothing, fd, O_CLOEXEC);
  socketRegistry().fds.clear();
  socketRegistry().mutex.unlock();
}

[[maybe_unused]] const int gSocketsAtFork = pthread_atfork(
    [] { socketRegistry().mutex.lock(); }, [] { socketRegistry().mutex.unlock(); }, closeInChild);

IoResult result(ssize_t n) {
  if (n > 0) return {static_cast<size_t>(n), IoResult::End::None, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return {0, IoResult::End::WouldBlock, 0};
  }
  return {0, IoResult::End::Failed, errno};
}

}  // namespace

Socket Socket::made(const std::function<int()>& open) {
  SocketRegistry& all = socketRegistry();
  std::lock_guard lock(all.mutex);
  if (all.nothing < 0) all.nothing = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (all.nothing < 0) return {};
  UniqueFd fd(open());
  if (!fd) return {};
  all.fds.insert(fd.get());
  Socket socket;
  socket.fd_ = std::move(fd);
  return socket;
}

void Socket::close() {
  if (!fd_) return;
  // Closed under the lock: a fork in between would leave the child with the socket.
  std::lock_guard lock(socketRegistry().mutex);
  socketRegistry().fds.erase(fd_.get());
  const UniqueFd closing = std::move(fd_);
}

NetAddress Socket::remote() const {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (!fd_ || ::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) return {};
  return NetAddress::from(reinterpret_cast<sockaddr*>(&name));
}

size_t Socket::unacknowledged() const {
  int bytes = 0;
  if (!fd_ || ::ioctl(fd_.get(), SIOCOUTQ, &bytes) != 0) return 0;
  return static_cast<size_t>(bytes);
}

Socket newSocket(int family) {
  Socket socket = Socket::made(
      [family] { return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!socket) throw systemError("socket", errno, kMakingSockets);
  return socket;
}

Socket acceptOne(const Socket& listener) {
  while (true) {
    Socket socket = Socket::made([&listener] {
      return ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    });
    if (socket) return socket;
    // A caller that has hung up already is no error of ours (accept(2) lists what it may leave).
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      throw systemError("accepting a connection", errno, kMakingSockets);
    }
    return {};
  }
}

IoResult readSome(const Socket& socket, std::span<std::byte> to) {
  const ssize_t n = ::recv(socket.get(), to.data(), to.size(), 0);
  if (n == 0) return {0, IoResult::End::Closed, 0};
  return result(n);
}

IoResult writeSome(const Socket& socket, std::span<const std::byte> from) {
  const ssize_t n = ::send(socket.get(), from.data(), from.size(), MSG_NOSIGNAL);
  countSent(n);
  return result(n);
}

Traffic& traffic() {
  static Traffic sent;
  return sent;
}

Traffic& trafficOfThread() {
  thread_local Traffic sent;
  return sent;
}

}  // namespace ctran
