#include "ctran/collective/send_recv/shm.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace ctran {
namespace {

constexpr size_t kLine = 64;

using MessageHeader = ShmChannel::MessageHeader;
using Message = ShmChannel::Message;

/// The parts of [position, position + bytes) before and after the end of the ring.
template <class Copy>
void inRing(const ShmChannel& channel, uint64_t position, size_t bytes, Copy copy) {
  const size_t at = position & (channel.capacity - 1);
  const size_t first = std::min(bytes, channel.capacity - at);
  copy(channel.ring + at, 0, first);
  if (bytes > first) copy(channel.ring, first, bytes - first);
}

size_t padded(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

/// One counter of the channel; the peer's move is waited for.
Condition reached(const ShmChannel& channel, const std::atomic<uint64_t>& counter,
                  uint64_t target) {
  return {reinterpret_cast<const std::byte*>(&counter),
          0,
          target,
          channel.peer,
          channel.peer + 1,
          channel.arena.names()};
}

/// That a message is the one that the receive describes. Throws Error(Mismatch).
void requireSame(const MessageHeader& header, const Collective& c, const ShmChannel& channel) {
  if (header.count == c.count && header.type == static_cast<uint64_t>(c.type)) return;
  const int rank = channel.arena.nameOf(channel.arena.rank());
  const int peer = channel.arena.nameOf(channel.peer);
  Collective sent;
  sent.kind = CollectiveKind::Send;
  sent.count = header.count;
  sent.type = static_cast<DataType>(header.type);
  sent.root = rank;
  sent.tag = c.tag;
  throw Error(
      ErrorKind::Mismatch,
      "rank " + std::to_string(rank) + " called " + c.describe() + ", but rank " +
          std::to_string(peer) + " called " + sent.describe(),
      {rank, peer}, c.describe(),
      "messages of a pair of ranks and a tag are matched in order; type and size must agree");
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
    return reached(channel, channel.counters.consumed, target);
  };

  size_t sent = std::min(bytes, largest - kLine);
  co_await room(kLine + padded(sent));
  const MessageHeader header{c.count, static_cast<uint64_t>(c.type), c.tag};
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

/// Takes the next message of the channel that has the tag; it must be of the same type and count.
/// Those before it are kept for the receives that will ask for them, so that their senders can go
/// on.
Task recvShm(ShmChannel& channel, const Collective& c) {
  const size_t largest = channel.capacity / 4;
  const auto produced = [&channel](size_t need) {
    return reached(channel, channel.counters.produced, channel.position + need);
  };

  const auto early =
      std::find_if(channel.early.begin(), channel.early.end(),
                   [&c](const Message& message) { return message.header.tag == c.tag; });
  if (early != channel.early.end()) {
    requireSame(early->header, c, channel);
    if (!early->data.empty()) std::memcpy(c.output, early->data.data(), early->data.size());
    channel.early.erase(early);
    co_return;
  }

  while (true) {
    co_await produced(kLine);
    MessageHeader header;
    std::memcpy(&header, channel.ring + (channel.position & (channel.capacity - 1)), sizeof header);
    const bool wanted = header.tag == c.tag;
    if (wanted) requireSame(header, c, channel);
    const size_t bytes = header.bytes();
    std::vector<std::byte> kept(wanted ? 0 : bytes);
    std::byte* const output = wanted ? c.output : kept.data();

    size_t received = std::min(bytes, largest - kLine);
    co_await produced(kLine + padded(received));
    inRing(channel, channel.position + kLine, received,
           [output](std::byte* from, size_t to, size_t n) {
             if (n != 0) std::memcpy(output + to, from, n);
           });
    channel.position += kLine + padded(received);
    channel.counters.consumed.store(channel.position, std::memory_order_release);
    channel.arena.published();

    while (received < bytes) {
      const size_t chunk = std::min(bytes - received, largest);
      co_await produced(padded(chunk));
      inRing(channel, channel.position, chunk,
             [output, received](std::byte* from, size_t to, size_t n) {
               std::memcpy(output + received + to, from, n);
             });
      received += chunk;
      channel.position += padded(chunk);
      channel.counters.consumed.store(channel.position, std::memory_order_release);
      channel.arena.published();
    }
    if (wanted) co_return;
    channel.early.push_back({header, std::move(kept)});
  }
}

}  // namespace ctran
