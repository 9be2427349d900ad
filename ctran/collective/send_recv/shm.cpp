#include "ctran/collective/send_recv/shm.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "ctran/base/checked.h"
#include "ctran/memory/prefetch.h"
#include "ctran/memory/stream_copy.h"

namespace ctran {
namespace {

/// The parts of [position, position + bytes) before and after the end of the ring.
template <class Byte, class Copy>
void inRing(Byte* ring, size_t capacity, uint64_t position, size_t bytes, Copy copy) {
  const size_t at = position & (capacity - 1);
  const size_t first = std::min(bytes, capacity - at);
  copy(ring + at, 0, first);
  if (bytes > first) copy(ring, first, bytes - first);
}

static_assert(sizeof(ShmMessageHeader) <= sizeof(Arena::Envelope::contents));
/// The most bytes of a message that lie in its envelope.
constexpr size_t kMostInside = sizeof(Arena::Envelope::contents) - sizeof(ShmMessageHeader);

/// How much of a message is handed over at a time: the receiver copies that while more is written.
size_t atATime(size_t capacity, size_t bytes) {
  constexpr size_t kFewest = 4 << 10, kMost = 16 << 10;
  return std::min(capacity / 4, std::clamp(std::bit_floor(bytes / 4), kFewest, kMost));
}

size_t padded(size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

/// That many envelopes, used in turn, are in the channel.
size_t envelopesOf(size_t capacity) { return capacity / sizeof(Arena::Envelope); }

/// One counter of the channel; the peer's move is waited for.
Condition reached(const Arena& arena, int peer, const std::atomic<uint64_t>& counter,
                  uint64_t target) {
  return {reinterpret_cast<const std::byte*>(&counter), 0, target, peer, peer + 1, arena.names()};
}

}  // namespace

/// Eager: ends when the message is in the channel. A message larger than the ring flows through it
/// while the receiver empties it.
Task sendShm(ShmChannel& channel, const Collective& c) {
  const size_t bytes = c.blockBytes();
  const size_t largest = atATime(channel.capacity, bytes);
  // Room up to `end`: the peer is done with all but the last `capacity` before it. Its counter is
  // read, which costs a cache miss, when what is known of it does not do.
  const auto roomUpTo = [&channel](uint64_t end, size_t capacity, uint64_t& known,
                                   const std::atomic<uint64_t>& counter) {
    const uint64_t target = end > capacity ? end - capacity : 0;
    if (known < target) known = counter.load(std::memory_order_acquire);
    return known >= target ? Condition{} : reached(channel.arena, channel.peer, counter, target);
  };
  const auto room = [&channel, &roomUpTo](size_t need) {
    return roomUpTo(channel.position + need, channel.capacity, channel.consumed,
                    channel.counters.consumed);
  };
  size_t sent = 0;
  const auto copyPart = [&](size_t part) {
    inRing(
        channel.ring, channel.capacity, channel.position, part,
        [&](std::byte* to, size_t from, size_t n) { std::memcpy(to, c.input + sent + from, n); });
    sent += part;
    channel.position += padded(part);
  };

  const size_t envelopes = envelopesOf(channel.capacity);
  const uint64_t sequence = channel.messages + 1;
  co_await roomUpTo(sequence, envelopes, channel.taken, channel.counters.taken);
  Arena::Envelope& envelope = channel.envelopes[channel.messages & (envelopes - 1)];
  const ShmMessageHeader header{c.count, static_cast<uint64_t>(c.type), c.tag};
  std::memcpy(envelope.contents, &header, sizeof header);
  if (bytes <= kMostInside) {
    if (bytes != 0) std::memcpy(envelope.contents + sizeof header, c.input, bytes);
    sent = bytes;
  } else {
    const size_t part = std::min(bytes, largest);
    co_await room(padded(part));
    copyPart(part);
  }
  channel.messages = sequence;
  envelope.sequence.store(sequence, std::memory_order_release);
  channel.arena.published();
  // The next message is likely to be of the same size.
  prefetchForWrite(&channel.envelopes[sequence & (envelopes - 1)]);
  if (sent == bytes && bytes > kMostInside) {
    const size_t at = channel.position & (channel.capacity - 1);
    prefetchForWrite(channel.ring + at, std::min(bytes, channel.capacity - at));
  }

  while (sent < bytes) {
    const size_t part = std::min(bytes - sent, largest);
    co_await room(padded(part));
    copyPart(part);
    channel.counters.produced.store(channel.position, std::memory_order_release);
    channel.arena.published();
  }
}

/// A receive in this mailbox.
class ShmMailbox::Receiver final : public Reception {
 public:
  explicit Receiver(ShmMailbox& mailbox) : mailbox_(mailbox) {}

  void begin(const Collective& receive, Claim& claim) override;
  bool poll() override;
  Condition waiting() const override {
    return reached(mailbox_.arena_, mailbox_.peer_, *awaited_.counter, awaited_.target);
  }
  void end() noexcept override;

 private:
  friend class ShmMailbox;
  bool claims(const ShmMessageHeader& header) {
    return header.tag == receive_->tag && claim_->take(mailbox_.arena_.nameOf(mailbox_.peer_));
  }
  bool fits(const ShmMessageHeader& header) const {
    return header.count == receive_->count && header.type == static_cast<uint64_t>(receive_->type);
  }

  ShmMailbox& mailbox_;
  const Collective* receive_ = nullptr;
  Claim* claim_ = nullptr;
  std::atomic<bool> ended_{false};
  Awaited awaited_{};
  // Guarded by the mailbox until it has ended.
  bool isWrong_ = false;
  ShmMessageHeader header_{};  // if that
};

std::unique_ptr<Reception> ShmMailbox::reception() { return std::make_unique<Receiver>(*this); }

void ShmMailbox::Receiver::begin(const Collective& receive, Claim& claim) {
  receive_ = &receive;
  claim_ = &claim;
  ended_.store(false, std::memory_order_relaxed);
  isWrong_ = false;
  const std::lock_guard lock(mailbox_.mutex_);
  auto& kept = mailbox_.kept_;
  const auto early = std::find_if(
      kept.begin(), kept.end(), [this](const Message& message) { return claims(message.header); });
  if (early == kept.end()) {
    mailbox_.waiting_.push_back(this);
    awaited_ = mailbox_.pump();
    return;
  }
  if (!fits(early->header)) throw mailbox_.mismatch(early->header, receive);
  if (!early->data.empty()) std::memcpy(receive.output, early->data.data(), early->data.size());
  kept.erase(early);
  ended_.store(true, std::memory_order_relaxed);
}

bool ShmMailbox::Receiver::poll() {
  if (!ended_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mailbox_.mutex_);
    awaited_ = mailbox_.pump();
    if (!ended_.load(std::memory_order_relaxed)) return false;
  }
  if (isWrong_) throw mailbox_.mismatch(header_, *receive_);
  return true;
}

void ShmMailbox::Receiver::end() noexcept {
  if (ended_.load(std::memory_order_acquire)) return;  // the mailbox has let go of it
  const std::lock_guard lock(mailbox_.mutex_);
  std::erase(mailbox_.waiting_, this);
  if (mailbox_.receiver_ == this) mailbox_.receiver_ = nullptr;
}

/// Takes what is in the channel for as long as a receive waits. Returns what has to come before it
/// can go on.
ShmMailbox::Awaited ShmMailbox::pump() {
  const auto nextPart = [this] {
    return std::min(header_.bytes() - received_, atATime(capacity_, header_.bytes()));
  };
  while (isOpen_ || !waiting_.empty()) {
    const Arena::Envelope& envelope = envelopes_[messages_ & (envelopesOf(capacity_) - 1)];
    const Awaited awaited = isOpen_ ? Awaited{&counters_.produced, position_ + padded(nextPart())}
                                    : Awaited{&envelope.sequence, messages_ + 1};
    if (awaited.counter->load(std::memory_order_acquire) < awaited.target) return awaited;
    if (!isOpen_) open(envelope);
    const size_t bytes = header_.bytes();
    // Null: the receive has been given up, and the communicator with it.
    std::byte* const output = receiver_ != nullptr    ? receiver_->receive_->output
                              : data_.size() == bytes ? data_.data()
                                                      : nullptr;
    const auto copy = [output, this](const std::byte* from, size_t to, size_t n) {
      if (n != 0 && output != nullptr) std::memcpy(output + received_ + to, from, n);
    };
    const size_t part = nextPart();
    if (bytes <= kMostInside) {
      copy(envelope.contents + sizeof header_, 0, part);
    } else {
      inRing(ring_, capacity_, position_, part, copy);
      position_ += padded(part);
      counters_.consumed.store(position_, std::memory_order_release);
    }
    if (received_ == 0) counters_.taken.store(messages_, std::memory_order_release);
    received_ += part;
    if (link_ != nullptr) RecordedLink::add(link_->inMessages, part);
    arena_.published();
    if (received_ == bytes) close();
  }
  return {&counters_.produced, 0};
}

/// Reads the next header and finds the receive that the message is for.
void ShmMailbox::open(const Arena::Envelope& envelope) {
  std::memcpy(&header_, envelope.contents, sizeof header_);
  const int peer = arena_.nameOf(peer_);
  Checked(header_.type).atMost(kDataTypeCount - 1, peer, "as the type of a message");
  (Checked(header_.count) * sizeOf(static_cast<DataType>(header_.type)))
      .atMost(PTRDIFF_MAX, peer, "bytes in a message");
  isOpen_ = true;
  ++messages_;
  received_ = 0;
  receiver_ = takeReceiver();
  if (receiver_ == nullptr) data_.resize(header_.bytes());
}

/// The first that waits for a message like the open one; one that it does not fit fails.
ShmMailbox::Receiver* ShmMailbox::takeReceiver() {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [this](Receiver* receiver) { return receiver->claims(header_); });
  if (found == waiting_.end()) return nullptr;
  Receiver* const receiver = *found;
  waiting_.erase(found);
  if (receiver->fits(header_)) return receiver;
  receiver->isWrong_ = true;
  receiver->header_ = header_;
  receiver->ended_.store(true, std::memory_order_release);
  return nullptr;
}

void ShmMailbox::close() {
  isOpen_ = false;
  const size_t bytes = header_.bytes();
  if (receiver_ == nullptr && data_.size() == bytes) {
    // A receive may have come while the message was being kept.
    receiver_ = takeReceiver();
    if (receiver_ == nullptr) {
      kept_.push_back({header_, std::move(data_)});
    } else if (bytes != 0) {
      std::memcpy(receiver_->receive_->output, data_.data(), bytes);
    }
  }
  data_.clear();
  if (receiver_ != nullptr) receiver_->ended_.store(true, std::memory_order_release);
  receiver_ = nullptr;
}

Error ShmMailbox::mismatch(const ShmMessageHeader& header, const Collective& c) const {
  const int rank = arena_.nameOf(arena_.rank());
  const int peer = arena_.nameOf(peer_);
  Collective sent;
  sent.kind = CollectiveKind::Send;
  sent.count = header.count;
  sent.type = static_cast<DataType>(header.type);
  sent.root = rank;
  sent.tag = c.tag;
  return {ErrorKind::Mismatch,
          "rank " + std::to_string(rank) + " called " + c.describe() + ", but rank " +
              std::to_string(peer) + " called " + sent.describe(),
          {rank, peer},
          c.describe(),
          "messages of a pair of ranks and a tag are matched in order; type and size must agree"};
}

}  // namespace ctran
