#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/collective/task.h"
#include "ctran/transport/shm/arena.h"

namespace ctran {

/// This rank's end of the channel to, or from, one peer. Messages of one tag are matched in order;
/// each is a header of one cache line and its bytes, padded to a cache line.
class ShmChannel {
 public:
  struct MessageHeader {
    uint64_t count;
    uint64_t type;
    int64_t tag;

    size_t bytes() const { return count * sizeOf(static_cast<DataType>(type)); }
  };
  struct Message {
    MessageHeader header;
    std::vector<std::byte> data;
  };

  /// `sends`: from this rank to `peer`; otherwise the other direction.
  ShmChannel(Arena& arena, int peer, bool sends)
      : arena(arena),
        peer(peer),
        counters(sends ? arena.channel(arena.rank(), peer) : arena.channel(peer, arena.rank())),
        ring(sends ? arena.channelData(arena.rank(), peer) : arena.channelData(peer, arena.rank())),
        capacity(arena.channelCapacity()) {}

  Arena& arena;
  const int peer;
  FrameMemory frame;
  Arena::Channel& counters;
  std::byte* const ring;
  const size_t capacity;
  uint64_t position = 0;      ///< bytes of the ring that this end has used up
  std::deque<Message> early;  ///< received while a receive of another tag was waited for
};

Task sendShm(ShmChannel& channel, const Collective& c);
Task recvShm(ShmChannel& channel, const Collective& c);

}  // namespace ctran
