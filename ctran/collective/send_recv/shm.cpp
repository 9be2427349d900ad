#include "ctran/collective/send_recv/shm.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace ctran {
namespace {

constexpr size_t kLine = 64;

struct MessageHeader {
  uint64_t count;
  uint64_t type;
};

/// The parts of [position, position + bytes) before and after the end of the ring.
template <class Copy>
void inRing(const ShmChannel& channel, uint64_t position, size_t bytes, Copy copy) {
  const size_t at = position & (channel.capacity - 1);
  const size_t first = std::min(bytes, channel.capacity - at);
  copy(channel.ring + at, 0, first);
  if (bytes > first) copy(channel.ring, first, bytes - first);
}

size_t padded(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

/// One counter of the channel; the rank is whose move is waited for.
Condition reached(const std::atomic<uint64_t>& counter, uint64_t target, int rank) {
  return {reinterpret_cast<const std::byte*>(&counter), 0, target, rank, rank + 1};
}

}  // namespace

/// Eager: ends when the message is in the ring. A message larger than the ring flows through it, a
/// quarter at a time, while the receiver empties it.
Task sendShm(ShmChannel& channel, const Collective& c) {
  const size_t bytes = c.blockBytes();
  const size_t largest = channel.capacity / 4;
  // Room for `need` more bytes: the receiver has consumed all but capacity - need of them.
  const auto room = [&channel](size_t need) {
    const uint64_t end = channel.position + need;
    const uint64_t target = end > channel.capacity ? end - channel.capacity : 0;
    return reached(channel.counters.consumed, target, channel.peer);
  };

  size_t sent = std::min(bytes, largest - kLine);
  co_await room(kLine + padded(sent));
  const MessageHeader header{c.count, static_cast<uint64_t>(c.type)};
  std::memcpy(channel.ring + (channel.position & (channel.capacity - 1)), &header, sizeof header);
  inRing(channel, channel.position + kLine, sent, [&c](std::byte* to, size_t from, size_t n) {
    if (n != 0) std::memcpy(to, c.input + from, n);
  });
  channel.position += kLine + padded(sent);
  channel.counters.produced.store(channel.position, std::memory_order_release);
  channel.arena.published();

  while (sent < bytes) {
    const size_t chunk = std::min(bytes - sent, largest);
    co_await room(padded(chunk));
    inRing(channel, channel.position, chunk, [&c, sent](std::byte* to, size_t from, size_t n) {
      std::memcpy(to, c.input + sent + from, n);
    });
    sent += chunk;
    channel.position += padded(chunk);
    channel.counters.produced.store(channel.position, std::memory_order_release);
    channel.arena.published();
  }
}

/// Takes the next message of the channel, which must be of the same type and count.
Task recvShm(ShmChannel& channel, const Collective& c) {
  const size_t bytes = c.blockBytes();
  const size_t largest = channel.capacity / 4;
  const auto produced = [&channel](size_t need) {
    return reached(channel.counters.produced, channel.position + need, channel.peer);
  };

  co_await produced(kLine);
  MessageHeader header;
  std::memcpy(&header, channel.ring + (channel.position & (channel.capacity - 1)), sizeof header);
  if (header.count != c.count || header.type != static_cast<uint64_t>(c.type)) {
    Collective sent;
    sent.kind = CollectiveKind::Send;
    sent.count = header.count;
    sent.type = static_cast<DataType>(header.type);
    sent.root = channel.arena.rank();
    throw Error(ErrorKind::Mismatch,
                "rank " + std::to_string(channel.arena.rank()) + " called " + c.describe() +
                    ", but rank " + std::to_string(channel.peer) + " called " + sent.describe(),
                {channel.arena.rank(), channel.peer}, c.describe(),
                "messages of a pair of ranks are matched in order; type and size must agree");
  }

  size_t received = std::min(bytes, largest - kLine);
  co_await produced(kLine + padded(received));
  inRing(channel, channel.position + kLine, received, [&c](std::byte* from, size_t to, size_t n) {
    if (n != 0) std::memcpy(c.output + to, from, n);
  });
  channel.position += kLine + padded(received);
  channel.counters.consumed.store(channel.position, std::memory_order_release);
  channel.arena.published();

  while (received < bytes) {
    const size_t chunk = std::min(bytes - received, largest);
    co_await produced(padded(chunk));
    inRing(channel, channel.position, chunk, [&c, received](std::byte* from, size_t to, size_t n) {
      std::memcpy(c.output + received + to, from, n);
    });
    received += chunk;
    channel.position += padded(chunk);
    channel.counters.consumed.store(channel.position, std::memory_order_release);
    channel.arena.published();
  }
}

}  // namespace ctran
