#include "ctran/os/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "ctran/base/error.h"
#include "ctran/os/traffic.h"

namespace ctran {
namespace {

constexpr size_t kMaxFds = 200;

constexpr int64_t kInterruptMillis = 100;

void waitReady(std::span<pollfd> entries, Deadline deadline, const Interrupt& interrupt = nullptr) {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto limit = std::clamp<int64_t>(left.count(), 0, interrupt ? kInterruptMillis : 1 << 30);
    const int n = ::poll(entries.data(), entries.size(), static_cast<int>(limit));
    if (n > 0) return;
    if (n < 0 && errno != EINTR) throw systemError("poll", errno);
    if (left.count() <= 0) throw Error(ErrorKind::Timeout, "a peer did not answer in time");
    if (interrupt) interrupt();
  }
}

void waitReady(int fd, short events, Deadline deadline, const Interrupt& interrupt = nullptr) {
  pollfd entry{fd, events, 0};
  waitReady(std::span(&entry, 1), deadline, interrupt);
}

std::pair<sockaddr_un, socklen_t> abstractAddress(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) {
    throw Error(ErrorKind::InvalidArgument, "socket name too long: " + name);
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the leading 0 makes it abstract
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

/// Where there is nothing to poll for: whether to look again.
bool waitAMoment(Deadline deadline, const Interrupt& interrupt) {
  if (std::chrono::steady_clock::now() >= deadline) return false;
  ::poll(nullptr, 0, 1);
  if (interrupt) interrupt();
  return true;
}

}  // namespace

Socket listenAbstract(const std::string& name, int backlog) {
  const auto [address, length] = abstractAddress(name);
  Socket socket = newSocket(AF_UNIX);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    throw systemError("bind", errno);
  }
  if (::listen(socket.get(), backlog) != 0) throw systemError("listen", errno);
  return socket;
}

Socket connectAbstract(const std::string& name, Deadline deadline, const Interrupt& interrupt) {
  const auto [address, length] = abstractAddress(name);
  while (true) {
    Socket socket = newSocket(AF_UNIX);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) {
      return socket;
    }
    if (errno == ECONNREFUSED) return {};
    // EAGAIN: the backlog is full.
    if (errno != EAGAIN && errno != EINTR) throw systemError("connect", errno);
    if (!waitAMoment(deadline, interrupt)) {
      throw Error(ErrorKind::Timeout, "the leader's socket stayed busy");
    }
  }
}

std::vector<size_t> waitReadable(std::span<const int> sockets, Deadline deadline,
                                 const Interrupt& interrupt) {
  std::vector<pollfd> entries;
  for (const int socket : sockets) entries.push_back({socket, POLLIN, 0});
  waitReady(entries, deadline, interrupt);
  std::vector<size_t> readable;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents != 0) readable.push_back(i);
  }
  return readable;
}

bool peerIsTrusted(const UniqueFd& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

pid_t peerPid(const UniqueFd& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return 0;
  return peer.pid;
}

void sendAll(const UniqueFd& socket, std::span<const std::byte> bytes, std::span<const int> fds,
             Deadline deadline, const Interrupt& interrupt) {
  if (fds.size() > kMaxFds) throw Error(ErrorKind::InvalidArgument, "too many descriptors");
  size_t sent = 0;
  while (sent < bytes.size()) {
    iovec part{const_cast<std::byte*>(bytes.data()) + sent, bytes.size() - sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
    if (sent == 0 && !fds.empty()) {  // descriptors travel with the first byte
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
    }
    const ssize_t n = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
    countSent(n);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EINTR) {
      waitReady(socket.get(), POLLOUT, deadline, interrupt);
    } else if (errno == ETOOMANYREFS) {
      if (!waitAMoment(deadline, interrupt)) {
        throw systemError("sending descriptors", ETOOMANYREFS, kNoDescriptors);
      }
    } else if (errno == EPIPE || errno == ECONNRESET) {
      throw Error(ErrorKind::PeerLost, "a peer left during the handshake");
    } else {
      throw systemError("sendmsg", errno);
    }
  }
}

std::vector<UniqueFd> receiveAll(const UniqueFd& socket, std::span<std::byte> bytes, size_t fdCount,
                                 Deadline deadline, const Interrupt& interrupt) {
  std::vector<UniqueFd> received;
  bool truncated = false;
  size_t got = 0;
  while (got < bytes.size()) {
    iovec part{bytes.data() + got, bytes.size() - got};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
    if (n > 0) {
      got += static_cast<size_t>(n);
      truncated |= (message.msg_flags & MSG_CTRUNC) != 0;
      for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
          int fd;
          std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof fd);
          received.emplace_back(fd);
        }
      }
      if (received.size() > fdCount) break;
    } else if (n == 0 || errno == ECONNRESET) {
      throw Error(ErrorKind::PeerLost, "a peer left during the handshake");
    } else if (errno == EAGAIN || errno == EINTR) {
      waitReady(socket.get(), POLLIN, deadline, interrupt);
    } else {
      throw systemError("recvmsg", errno);
    }
  }
  // The kernel drops what this process has no room for.
  if (truncated && !socket.duplicate()) {
    throw systemError(kNoDescriptors, errno, kNoDescriptors);
  }
  if (received.size() != fdCount) {
    throw Error(ErrorKind::System, "a peer sent " + std::to_string(received.size()) +
                                       " descriptors instead of " + std::to_string(fdCount));
  }
  return received;
}

}  // namespace ctran
