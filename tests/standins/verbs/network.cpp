#include "tests/standins/verbs/network.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/standins/verbs/wire.h"

namespace stand_in {
namespace {

constexpr uint32_t kSlots = 1 << 10;  // a queue pair's number has 24 bits

sockaddr_un addressOf(uint32_t slot, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "stand-in-verbs-" + std::to_string(slot);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

}  // namespace

void Network::forked() {
  ::close(listener_);
  if (open_) ::close(waker_);
  for (const auto& connection : connections_) ::close(connection->fd);
  connections_.clear();
  waiting_.clear();
  listener_ = waker_ = -1;
  open_ = false;
}

uint32_t Network::firstQpNum() {
  static const bool once = [] {
    ::pthread_atfork([] { Wire::get().mutex.lock(); }, [] { Wire::get().mutex.unlock(); },
                     [] {
                       Wire::get().network.forked();
                       Wire::get().mutex.unlock();
                     });
    return true;
  }();
  static_cast<void>(once);
  // The first name that no living process has.
  for (uint32_t i = 0; listener_ < 0; ++i) {
    if (i == kSlots) std::abort();
    slot_ = (static_cast<uint32_t>(::getpid()) + i) % kSlots;
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t length = 0;
    const sockaddr_un address = addressOf(slot_, length);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
        ::listen(fd, 128) == 0) {
      listener_ = fd;
    } else {
      ::close(fd);
    }
  }
  return slot_ * kQpNums;
}

void Network::open() {
  if (open_) return;
  open_ = true;
  firstQpNum();
  waker_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  // As the thread of a library: signals of the program are not for it.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { serve(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Network::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(waker_, &one, sizeof one);
}

void Network::flush(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t n = ::send(connection.fd, connection.out.data(), connection.out.size(),
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) return;  // the thread goes on, or hears why not
    connection.out.erase(0, static_cast<size_t>(n));
  }
}

void Network::put(Connection& connection, const Request& request, const std::string& payload) {
  Request header = request;
  header.payload = static_cast<uint32_t>(payload.size());
  connection.out.append(reinterpret_cast<const char*>(&header), sizeof header);
  connection.out += payload;
  flush(connection);
  if (!connection.out.empty()) wake();
}

bool Network::send(const Request& request, const std::string& payload) {
  open();
  const uint32_t slot = request.toQp / kQpNums;
  for (const auto& connection : connections_) {
    if (connection->slot != slot) continue;
    put(*connection, request, payload);
    return true;
  }
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  const sockaddr_un address = addressOf(slot, length);
  if (slot == slot_ || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    ::close(fd);
    return false;
  }
  const int size = 4 << 20;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  connections_.push_back(std::make_shared<Connection>(Connection{fd, slot, {}, {}}));
  put(*connections_.back(), request, payload);
  wake();
  return true;
}

void Network::serve() {
  std::string buffer(1 << 20, '\0');
  for (;;) {
    std::vector<pollfd> fds = {{listener_, POLLIN, 0}, {waker_, POLLIN, 0}};
    std::vector<std::shared_ptr<Connection>> all;
    int wait = -1;
    {
      std::lock_guard lock(wire_.mutex);
      all = connections_;
      for (const auto& connection : all) {
        const int events = connection->out.empty() ? POLLIN : POLLIN | POLLOUT;
        fds.push_back({connection->fd, static_cast<short>(events), 0});
      }
      // With a seed things happen as queues are polled; but who sleeps has to be woken.
      if (wire_.seed != 0) wait = 1;
    }
    ::poll(fds.data(), fds.size(), wait);
    uint64_t ignored;
    [[maybe_unused]] const ssize_t n = ::read(waker_, &ignored, sizeof ignored);
    std::lock_guard lock(wire_.mutex);
    for (int fd; (fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      connections_.push_back(std::make_shared<Connection>(Connection{fd, kAccepted, {}, {}}));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const int events = fds[i + 2].revents;
      if (events & POLLOUT) flush(*all[i]);
      if (!(events & ~POLLOUT)) continue;
      const ssize_t bytes = ::recv(all[i]->fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (bytes > 0) {
        all[i]->in.append(buffer, 0, static_cast<size_t>(bytes));
        parse(all[i]);
      } else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
        ::close(all[i]->fd);
        std::erase(connections_, all[i]);
        if (all[i]->slot != kAccepted) wire_.unreachable(all[i]->slot);
      }
    }
    wire_.advance();
  }
}

void Network::parse(const std::shared_ptr<Connection>& connection) {
  size_t at = 0;
  std::string& in = connection->in;
  for (Request request; in.size() - at >= sizeof request;) {
    std::memcpy(&request, in.data() + at, sizeof request);
    if (in.size() - at - sizeof request < request.payload) break;
    std::string payload = in.substr(at + sizeof request, request.payload);
    at += sizeof request + request.payload;
    if (request.replyTo != 0) {
      wire_.answered(request, payload);
    } else {
      handle(connection, request, std::move(payload));
    }
  }
  in.erase(0, at);
}

void Network::handle(const std::shared_ptr<Connection>& connection, const Request& request,
                     std::string payload) {
  const ibv_wc_status status = wire_.serve(request, payload);
  if (status == kNotReady) {
    waiting_.push_back({connection, request, std::move(payload)});
    return;
  }
  Request reply{};
  reply.replyTo = request.id;
  reply.toQp = request.fromQp;
  reply.fromQp = request.toQp;
  reply.status = status;
  const bool fetches = request.opcode == IBV_WR_RDMA_READ || isAtomic(request.opcode);
  put(*connection, reply, fetches && status == IBV_WC_SUCCESS ? payload : std::string());
}

void Network::retry() {
  std::vector<Waiting> again;
  again.swap(waiting_);
  for (Waiting& each : again) {
    if (const auto connection = each.from.lock()) {
      handle(connection, each.request, std::move(each.payload));
    }
  }
}

}  // namespace stand_in
