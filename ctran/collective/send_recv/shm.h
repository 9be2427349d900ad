#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/collective/send_recv/receive.h"
#include "ctran/collective/task.h"
#include "ctran/trace/recording.h"
#include "ctran/transport/shm/arena.h"

namespace ctran {

/// What an envelope has; bytes that have room there follow.
struct ShmMessageHeader {
  uint64_t count;
  uint64_t type;
  int64_t tag;

  size_t bytes() const { return count * sizeOf(static_cast<DataType>(type)); }
};

/// The sending end of the channel to one peer.
class ShmChannel {
 public:
  ShmChannel(Arena& arena, int peer)
      : arena(arena),
        peer(peer),
        counters(arena.channel(arena.rank(), peer)),
        envelopes(arena.envelopes(arena.rank(), peer)),
        ring(arena.channelData(arena.rank(), peer)),
        capacity(arena.channelCapacity()) {}

  Arena& arena;
  const int peer;
  FrameMemory frame;
  Arena::Channel& counters;
  Arena::Envelope* const envelopes;
  std::byte* const ring;
  const size_t capacity;
  uint64_t messages = 0;  ///< that this end has begun
  uint64_t taken = 0;     ///< and those that the other end is known to have taken
  uint64_t position = 0;  ///< bytes of the ring that this end has used up
  uint64_t consumed = 0;  ///< and what the other end is known to have taken
};

Task sendShm(ShmChannel& channel, const Collective& c);

/// The receiving end. The thread that waits for a message empties the ring. A message that another
/// receive waits for goes to it; a message that no receive waits for yet is kept, so that its
/// sender can go on.
class ShmMailbox final : public Mailbox {
 public:
  /// `link` counts what comes; may be null.
  ShmMailbox(Arena& arena, int peer, RecordedLink* link = nullptr)
      : arena_(arena),
        peer_(peer),
        counters_(arena.channel(peer, arena.rank())),
        envelopes_(arena.envelopes(peer, arena.rank())),
        ring_(arena.channelData(peer, arena.rank())),
        capacity_(arena.channelCapacity()),
        link_(link) {}

  std::unique_ptr<Reception> reception() override;

 private:
  class Receiver;
  struct Message {
    ShmMessageHeader header;
    std::vector<std::byte> data;
  };

  /// A counter of the channel, and how far it has to get.
  struct Awaited {
    const std::atomic<uint64_t>* counter;
    uint64_t target;
  };

  Awaited pump();
  void open(const Arena::Envelope& envelope);
  Receiver* takeReceiver();
  void close();
  Error mismatch(const ShmMessageHeader& header, const Collective& c) const;

  Arena& arena_;
  const int peer_;
  Arena::Channel& counters_;
  const Arena::Envelope* const envelopes_;
  const std::byte* const ring_;
  const size_t capacity_;
  RecordedLink* const link_;

  std::mutex mutex_;                // guards what follows
  uint64_t messages_ = 0;           // that have been opened
  uint64_t position_ = 0;           // bytes of the ring that have been taken
  std::vector<Receiver*> waiting_;  // in the order in which they came
  std::deque<Message> kept_;
  // The message that is being taken.
  bool isOpen_ = false;
  ShmMessageHeader header_{};
  size_t received_ = 0;           // bytes of data that are no longer in the ring
  Receiver* receiver_ = nullptr;  // null: the message is kept
  std::vector<std::byte> data_;
};

}  // namespace ctran
