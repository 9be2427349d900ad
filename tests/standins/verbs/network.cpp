#include "tests/standins/verbs/network.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "tests/standins/verbs/wire.h"

namespace stand_in {
namespace {

constexpr uint32_t kSlots = 1 << 10;  // a queue pair's number has 24 bits
constexpr size_t kPartBytes = 64 << 10;
/// How often a process that owes an answer is looked after: nothing else tells that it is gone.
constexpr int kLookMillis = 20;

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
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  isServed_ = false;
  peers_.clear();
  waiting_.clear();
}

/// At the first name that no living process has.
bool Network::bind() {
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const int size = 4 << 20;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  for (uint32_t i = 0; i < kSlots; ++i) {
    slot_ = (static_cast<uint32_t>(::getpid()) + i) % kSlots;
    socklen_t length = 0;
    const sockaddr_un address = addressOf(slot_, length);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) continue;
    socket_ = fd;
    return true;
  }
  ::close(fd);
  errno = EADDRINUSE;
  return false;
}

bool Network::open() {
  static const bool once = [] {
    ::pthread_atfork([] { Wire::get().mutex.lock(); }, [] { Wire::get().mutex.unlock(); },
                     [] {
                       Wire::get().network.forked();
                       Wire::get().mutex.unlock();
                     });
    return true;
  }();
  static_cast<void>(once);
  return socket_ >= 0 || bind();
}

void Network::start() {
  if (std::exchange(isServed_, true)) return;
  // As the thread of a library: signals of the program are not for it.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { serve(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// How many bytes have left; an error if none has.
ssize_t Network::sendPart(uint32_t slot, const char* data, size_t bytes) const {
  socklen_t length = 0;
  sockaddr_un address = addressOf(slot, length);
  Sender self{slot_, ::getpid()};
  iovec parts[] = {{&self, sizeof self}, {const_cast<char*>(data), std::min(bytes, kPartBytes)}};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = length;
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  const ssize_t n = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return n < 0 ? n : static_cast<ssize_t>(parts[1].iov_len);
}

/// False if there is no such process.
bool Network::flush(uint32_t slot, Peer& peer) {
  while (peer.sent < peer.out.size()) {
    const ssize_t n = sendPart(slot, peer.out.data() + peer.sent, peer.out.size() - peer.sent);
    if (n < 0) return errno != ECONNREFUSED;  // where there is no room now the thread goes on
    peer.sent += static_cast<size_t>(n);
  }
  peer.out = {};
  peer.sent = 0;
  return true;
}

bool Network::put(uint32_t slot, const Request& request, const std::string& payload) {
  Request header = request;
  header.payload = static_cast<uint32_t>(payload.size());
  Peer& peer = peers_[slot];
  peer.out.append(reinterpret_cast<const char*>(&header), sizeof header);
  peer.out += payload;
  if (!flush(slot, peer)) {
    peers_.erase(slot);
    return false;
  }
  return true;
}

bool Network::send(const Request& request, const std::string& payload) {
  const uint32_t slot = request.toQp / kQpNums;
  if (slot == slot_ || !put(slot, request, payload)) return false;
  sendPart(slot_, nullptr, 0);  // the thread is to look after it
  return true;
}

void Network::serve() {
  for (;;) {
    int wait = -1;
    int fd = -1;
    {
      std::lock_guard lock(wire_.mutex);
      fd = socket_;
      const auto isAsked = [](const Qp* qp) { return qp->asked != 0; };
      if (std::any_of(wire_.order.begin(), wire_.order.end(), isAsked)) wait = kLookMillis;
      const auto waits = [](const auto& peer) { return !peer.second.out.empty(); };
      if (std::any_of(peers_.begin(), peers_.end(), waits)) wait = 1;
      // With a seed things happen as queues are polled; but who sleeps has to be woken.
      if (wire_.seed != 0) wait = 1;
    }
    pollfd readable{fd, POLLIN, 0};
    ::poll(&readable, 1, wait);
    std::lock_guard lock(wire_.mutex);
    take();
    look();
    wire_.advance();
  }
}

/// What has come.
void Network::take() {
  std::string buffer(sizeof(Sender) + kPartBytes, '\0');
  for (;;) {
    const ssize_t bytes = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes < 0) return;
    Sender from{};
    if (static_cast<size_t>(bytes) <= sizeof from) continue;  // it only looks, or wakes
    std::memcpy(&from, buffer.data(), sizeof from);
    Peer& peer = peers_[from.slot];
    if (std::exchange(peer.process, from.process) != from.process) peer.in.clear();
    peer.in.append(buffer, sizeof from, static_cast<size_t>(bytes) - sizeof from);
    parse(from, peer);
  }
}

/// Which of the processes that owe something are gone.
void Network::look() {
  std::set<uint32_t> slots;
  for (const auto& [slot, peer] : peers_) {
    if (!peer.out.empty()) slots.insert(slot);
  }
  for (const Qp* qp : wire_.order) {
    if (qp->asked != 0) slots.insert(qp->attributes.dest_qp_num / kQpNums);
  }
  for (const uint32_t slot : slots) {
    const auto found = peers_.find(slot);
    const bool waits = found != peers_.end() && !found->second.out.empty();
    const bool isThere = waits ? flush(slot, found->second)
                               : sendPart(slot, nullptr, 0) >= 0 || errno != ECONNREFUSED;
    if (isThere) continue;
    peers_.erase(slot);
    wire_.unreachable(slot);
  }
}

void Network::parse(const Sender& from, Peer& peer) {
  std::string in = std::exchange(peer.in, {});
  size_t at = 0;
  for (Request request; in.size() - at >= sizeof request;) {
    std::memcpy(&request, in.data() + at, sizeof request);
    if (in.size() - at - sizeof request < request.payload) break;
    std::string payload = in.substr(at + sizeof request, request.payload);
    at += sizeof request + request.payload;
    if (request.replyTo != 0) {
      wire_.answered(request, payload);
    } else {
      handle(from, request, std::move(payload));
    }
  }
  if (at == in.size()) return;
  in.erase(0, at);
  peers_[from.slot].process = from.process;
  peers_[from.slot].in = std::move(in);
}

void Network::handle(const Sender& from, const Request& request, std::string payload) {
  const ibv_wc_status status = wire_.serve(request, payload);
  if (status == kNotReady) {
    waiting_.push_back({from, request, std::move(payload)});
    return;
  }
  Request reply{};
  reply.replyTo = request.id;
  reply.toQp = request.fromQp;
  reply.fromQp = request.toQp;
  reply.status = status;
  const bool fetches = request.opcode == IBV_WR_RDMA_READ || isAtomic(request.opcode);
  put(from.slot, reply, fetches && status == IBV_WC_SUCCESS ? payload : std::string());
}

void Network::retry() {
  std::vector<Waiting> again;
  again.swap(waiting_);
  for (Waiting& each : again) handle(each.from, each.request, std::move(each.payload));
}

}  // namespace stand_in
