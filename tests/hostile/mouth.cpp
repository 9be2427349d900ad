#include "tests/hostile/mouth.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/transport/tcp/failure.h"
#include "ctran/transport/tcp/frame.h"

namespace ctran::testing {
namespace {

using Bytes = std::vector<std::byte>;
using SendMessage = ssize_t (*)(int, const msghdr*, int);

SendMessage original() {
  static const auto found = reinterpret_cast<SendMessage>(::dlsym(RTLD_NEXT, "sendmsg"));
  return found;
}

/// A pointer, as a program's other threads may send while it ends.
struct Mouth {
  std::mutex mutex;
  bool lies = false;
  Lie lie;
  uint32_t frames = 0, told = 0;
  bool isDone = false;
  std::map<ino_t, int> links;  ///< connections that carry frames, and their descriptors
};

Mouth& mouth() {
  static Mouth& one = *new Mouth;
  return one;
}

bool isTcp(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
         (domain == AF_INET || domain == AF_INET6);
}

ino_t inodeOf(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
}

/// All of it, or for want of a reader nothing more: the engine is told that the connection is
/// broken.
bool sendWhole(int fd, const Bytes& bytes) {
  constexpr int kMillis = 2000;
  size_t sent = 0;
  while (sent < bytes.size()) {
    iovec part{const_cast<std::byte*>(bytes.data()) + sent, bytes.size() - sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t n = original()(fd, &message, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
      continue;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
    pollfd entry{fd, POLLOUT, 0};
    if (::poll(&entry, 1, kMillis) == 0) return false;
  }
  return true;
}

void put(Bytes& to, const void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  to.insert(to.end(), first, first + bytes);
}

uint64_t changed(const Lie& lie, uint64_t said) {
  return lie.isRelative ? said + lie.value : lie.value;
}

void change(const Lie& lie, FrameHeader& header) {
  switch (lie.field) {
    case 0:
      header.type = static_cast<FrameType>(changed(lie, static_cast<uint32_t>(header.type)));
      return;
    case 1:
      header.bytes = static_cast<uint32_t>(changed(lie, header.bytes));
      return;
    case 2:
      header.name.queue = static_cast<uint32_t>(changed(lie, header.name.queue));
      return;
    case 3:
      header.name.buffer = static_cast<uint32_t>(changed(lie, header.name.buffer));
      return;
    case 4:
      header.name.sequence = changed(lie, header.name.sequence);
      return;
    case 5:
      header.offset = changed(lie, header.offset);
      return;
    case 6:
      header.signature = changed(lie, header.signature);
      return;
    case 7:
      header.what = changed(lie, header.what);
      return;
    default:
      header.count = changed(lie, header.count);
  }
}

Bytes extraFrames(const Lie& lie, FrameHeader like) {
  constexpr size_t kMost = 8 << 20;
  Bytes all;
  for (uint32_t i = 0; i < lie.times && all.size() < kMost; ++i) {
    FrameHeader header = like;
    header.type = static_cast<FrameType>(lie.type);
    header.bytes = header.type == FrameType::Eager || header.type == FrameType::Data ? 8 : 0;
    header.name.buffer += i;
    Bytes payload(header.bytes, std::byte{0x5a});
    if (header.type == FrameType::Failure) {
      const std::string text = serializeFailure(
          Error(ErrorKind::PeerLost, "a lie", {-1, INT_MIN, INT_MAX, static_cast<int>(lie.value)}),
          0);
      put(payload, text.data(), text.size());
      header.bytes = static_cast<uint32_t>(payload.size());
    }
    if (!lie.inFailure || header.type != FrameType::Failure) change(lie, header);
    payload.resize(std::min<size_t>(header.bytes, 1 << 20), std::byte{0xa5});
    put(all, &header, sizeof header);
    put(all, payload.data(), payload.size());
  }
  return all;
}

bool looksLikeFrames(const Bytes& bytes) {
  if (bytes.size() < sizeof(FrameHeader)) return false;
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto type = static_cast<uint32_t>(header.type);
  return type >= 1 && type <= 8 && whyInvalid(header) == nullptr;
}

void changePayload(const Lie& lie, std::byte* payload, size_t bytes) {
  const size_t at = lie.field * sizeof(uint64_t);
  if (at + sizeof(uint64_t) > bytes) return;
  uint64_t word;
  std::memcpy(&word, payload + at, sizeof word);
  word = changed(lie, word);
  std::memcpy(payload + at, &word, sizeof word);
}

/// What leaves instead of what the engine says, which is whole frames, or a message of the time
/// before there are frames.
Bytes spoken(Mouth& m, const Bytes& said, bool isFrames) {
  const auto isTurn = [&m] { return m.lies && !m.isDone && m.frames++ == m.lie.after; };
  if (!isFrames) {
    Bytes all = said;
    if (isTurn() && m.lie.kind == Lie::Payload) {
      changePayload(m.lie, all.data(), all.size());
      ++m.told;
      m.isDone = true;
    }
    return all;
  }
  Bytes all;
  for (size_t at = 0; at + sizeof(FrameHeader) <= said.size();) {
    FrameHeader header;
    std::memcpy(&header, said.data() + at, sizeof header);
    const size_t bytes = header.bytes;
    Bytes payload(said.begin() + static_cast<std::ptrdiff_t>(at + sizeof header),
                  said.begin() + static_cast<std::ptrdiff_t>(at + sizeof header + bytes));
    at += sizeof header + bytes;
    if (isTurn()) {
      ++m.told;
      m.isDone = true;
      if (m.lie.kind == Lie::Silence) continue;
      if (m.lie.kind == Lie::Field) change(m.lie, header);
      if (m.lie.kind == Lie::Payload) changePayload(m.lie, payload.data(), payload.size());
      if (m.lie.kind == Lie::Extra) all = extraFrames(m.lie, header);
    }
    put(all, &header, sizeof header);
    put(all, payload.data(), payload.size());
  }
  return all;
}

}  // namespace

void beginLying(const Scenario& scenario) {
  Mouth& m = mouth();
  const std::lock_guard lock(m.mutex);
  m.lies = true;
  m.lie = scenario.lie;
  m.frames = m.told = 0;
  m.isDone = false;
}

void lieNow() {
  Mouth& m = mouth();
  const std::lock_guard lock(m.mutex);
  if (!m.lies || m.isDone || m.lie.kind != Lie::Extra) return;
  FrameHeader like;
  like.name.sequence = 2;
  const Bytes all = extraFrames(m.lie, like);
  for (const auto& [inode, fd] : m.links) {
    if (inodeOf(fd) != inode) continue;
    sendWhole(fd, all);
    ++m.told;
  }
  m.isDone = true;
}

uint32_t endLying() {
  Mouth& m = mouth();
  const std::lock_guard lock(m.mutex);
  m.lies = false;
  m.links.clear();
  return m.told;
}

}  // namespace ctran::testing

/// All that leaves on TCP, in every process of the program; lies are told where they were begun.
extern "C" __attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message,
                                                                  int flags) {
  using namespace ctran::testing;
  if (!isTcp(fd)) return original()(fd, message, flags);
  Bytes said;
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    put(said, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
  }
  Mouth& m = mouth();
  const std::lock_guard lock(m.mutex);
  if (!m.lies) return original()(fd, message, flags);
  const ino_t inode = inodeOf(fd);
  const bool isFrames = m.links.contains(inode) || looksLikeFrames(said);
  if (isFrames) m.links[inode] = fd;
  if (sendWhole(fd, spoken(m, said, isFrames))) return static_cast<ssize_t>(said.size());
  errno = EPIPE;
  return -1;
}
