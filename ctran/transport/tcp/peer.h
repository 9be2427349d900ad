#pragma once

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ctran/transport/ib/link.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {

/// The doorman in epoll; callers and connections have their peer's rank, see connections.cpp.
inline constexpr uint64_t kDoorman = UINT64_MAX;
/// The first RDMA device; others follow.
inline constexpr uint64_t kDevices = uint64_t{1} << 41;

/// What the frames of a message, or of a Fetch, have for their owner.
inline void* ownerOf(Transmission& message) { return &message; }

/// A frame of a message.
FrameHeader headerOf(FrameType type, size_t bytes, const Transmission& message, uint64_t offset);

/// One of the connections to a peer. Those beside the first carry Data only. They come and go as
/// the first does (see State), but for two things: the lower rank calls all of them, and one that
/// cannot be made is not missed.
struct TcpTransport::Connection final : Link::Reader {
  Connection(Peer& peer, uint32_t index) : peer(peer), index(index) {}

  Peer& peer;
  const uint32_t index;
  State state = State::Unknown;
  std::unique_ptr<Caller> caller;
  int callerFd = -1;
  Link link;
  bool wantsToWrite = false;  // epoll tells when the socket has room
  bool hasLeft = false;       // the peer has said goodbye on it

  // Where the payload that is being read belongs.
  Inbound* inbound = nullptr;
  Early* arriving = nullptr;
  std::vector<std::byte> failure;
  IbTarget target;
  uint64_t placedBytes = 0;

  bool isFirst() const { return index == 0; }
  /// What is read over RDMA has objects of this kind too, which have no socket: one for each rail.
  static constexpr uint32_t kRails = 1u << 16;
  bool isRdma() const { return index >= kRails; }
  /// Whether it carries anything; others carry Data, and Placed over RDMA.
  bool isMain() const { return isFirst() || index == kRails; }
  bool isThere() const { return state == State::Up || state == State::Accepted; }
  /// Whether the link may carry what is in it.
  bool isOpen() const;

  void stopCalling() {
    caller.reset();
    callerFd = -1;
  }
  void close(State as) {
    stopCalling();
    link.close();
    state = as;
  }
  /// Nothing is written any more to where a message was bound.
  void letGo(const Inbound& message) {
    if (inbound != &message) return;
    link.divert(message.data, message.data + message.bytes);
    inbound = nullptr;
  }

  std::byte* begin(const FrameHeader& frame) override;
  void end(const FrameHeader& frame) override;

 private:
  std::byte* beginEager(const FrameHeader& frame);
  std::byte* beginData(const FrameHeader& frame);
  std::byte* aboutRail(const FrameHeader& frame);
  void ready(const FrameHeader& frame, const std::optional<IbTarget>& target);
  void beginAnnounce(const FrameHeader& frame);
};

/// RDMA to a peer over one device of each end.
///
///     nothing --offer--> offered --both writes have passed--> sends
///        ^                  |                                  |
///        +---again?--- both have said Lost <------failure------+
///
/// Each direction is in use from its Switch on.
struct TcpTransport::Rail {
  Rail(Peer& peer, uint32_t index) : index(index), reader(peer, Connection::kRails + index) {}

  const uint32_t index;
  std::unique_ptr<IbLink> link;
  Connection reader;  // Up when the peer has switched
  bool hasOffered = false;
  bool isProven = false, isProvenThere = false;  // a write has passed: ours, the peer's
  bool sends = false, hasSwitched = false;       // ours, the peer's direction
  uint32_t attempts = 0;                         // before this one
  int64_t failedAt = 0;                          // when; nanoseconds. Negative: closed
  bool wasUsed = false;                          // when it failed
  bool saysLost = false;                         // and waits for the peer to say so
  std::vector<std::byte> card = {};
};

/// What this rank knows of another one, and has with it.
struct TcpTransport::Peer {
  Peer(TcpTransport& transport, int rank) : transport(transport), rank(rank) {
    connections.push_back(std::make_unique<Connection>(*this, 0));
    rails.push_back(std::make_unique<Rail>(*this, 0));
  }

  TcpTransport& transport;
  const int rank;
  std::vector<std::unique_ptr<Connection>> connections;  // the first is always there
  Link::Frames bulk;                                     // Data that none of them has taken yet
  RecordedLink* recorded = nullptr;                      // null: not recorded, or not yet
  int64_t lookedAt = 0;    // at how the connections are used; nanoseconds
  uint64_t bulkBytes = 0;  // in large messages so far, in both directions
  bool hasCalledMore = false;
  bool hasLeft = false;  // has said goodbye on all of them
  bool isNear = false;   // shares this rank's board, in which it writes itself

  std::vector<std::unique_ptr<Rail>> rails;  // the first is always there
  std::string whyNoRdma;                     // of this pair
  uint64_t messagesPlaced = 0;
  std::map<uint32_t, Fetch*> asked;  // over the connection, and not answered
  Link::Frames held;                 // leave when they are

  std::map<MessageName, Inbound*> bound;      // not complete
  std::set<MessageName> forsaken;             // the peer may send them, but their operation failed
  std::map<MessageName, Early> early;         // complete, or on the way, and not bound
  std::map<MessageName, OtherEnd> announced;  // larger ones that are not bound
  struct Ready {
    OtherEnd other;
    std::optional<IbTarget> target;
  };
  std::map<MessageName, Ready> ready;  // that the peer has bound, and that were not sent yet
  std::map<MessageName, std::shared_ptr<IbRegion>> granted;  // may be placed; holds their keys
  std::map<MessageName, Outbound*> unready;                  // that the peer has not bound yet

  /// Announcements, or words that this rank is ready, of which the peer takes kMaxPromises that it
  /// has not come to.
  struct Promises {
    size_t told = 0;              // that the peer may not have come to
    std::set<MessageName> later;  // are told when there is room
  };
  Promises announcements, readiness;
  Promises& promises(FrameType type) {
    return type == FrameType::Announce ? announcements : readiness;
  }

  struct Window {
    size_t used = 0;                // of the peer's memory, by what was sent
    std::deque<Outbound*> waiting;  // for room in it
    size_t held = 0;                // of this rank's memory, as the peer counts
    size_t consumed = 0;            // of that, to be told to the peer
  };
  Window windows[kQueues];

  uint64_t lastRecord = 0;
  MessageName lastMessage;

  Connection& first() const { return *connections.front(); }
  /// The rail that carries everything.
  Rail& main() const { return *rails.front(); }
  bool sendsOverRdma() const { return main().sends; }
  bool hasRdma() const { return main().link && !main().link->hasFailed(); }
  State state() const { return first().state; }
  bool isThere() const { return first().isThere(); }
  /// How many of the connections are.
  int connectionsThere() const {
    return static_cast<int>(std::count_if(connections.begin(), connections.end(),
                                          [](const auto& each) { return each->isThere(); }));
  }

  /// What the peer is to read after all that was sent before.
  void push(Link::Outgoing frame) {
    if (sendsOverRdma()) {
      main().link->push(std::move(frame));
    } else {
      transport.pushInOrder(*this, std::move(frame));
    }
  }

  /// Whether several connections share what there is to send.
  bool isShared() const { return connections.size() > 1; }
  /// Whether something waits to be sent.
  bool hasOutput() const {
    const auto holds = [](const auto& rail) { return rail->sends && rail->link->hasOutput(); };
    return !bulk.empty() || std::any_of(rails.begin(), rails.end(), holds) ||
           std::any_of(connections.begin(), connections.end(),
                       [](const auto& each) { return each->link.hasOutput(); });
  }
  /// Whether an operation of this rank waits for it.
  bool isNeeded() const {
    const auto waits = [](const Window& window) { return !window.waiting.empty(); };
    return !bound.empty() || !unready.empty() || hasOutput() ||
           std::any_of(std::begin(windows), std::end(windows), waits);
  }
  /// Of the connections that have room the one with the least on its way, which is to take the next
  /// of the bulk data, so that each gets as much as it moves; null if none has room.
  Connection* emptiest() const {
    Connection* found = nullptr;
    size_t least = SIZE_MAX;
    for (const auto& connection : connections) {
      const Link& link = connection->link;
      if (!connection->isOpen() || link.hasOutput() || link.isBroken()) continue;
      const size_t onItsWay = isShared() ? link.socket().unacknowledged() : 0;
      if (found != nullptr && onItsWay >= least) continue;
      least = onItsWay;
      found = connection.get();
    }
    return found;
  }
  Inbound* find(const MessageName& name) const {
    const auto found = bound.find(name);
    return found == bound.end() ? nullptr : found->second;
  }
};

inline bool TcpTransport::Connection::isOpen() const {
  return state == State::Up ||
         (state == State::Accepted && (peer.transport.told_ || peer.transport.leaving_));
}

/// The lock, of which a thread that polls again and again would leave little to others.
class TcpTransport::Lock {
 public:
  explicit Lock(TcpTransport& transport) : transport_(transport) {
    transport_.wanted_.fetch_add(1, std::memory_order_relaxed);
    transport_.mutex_.lock();
    transport_.wanted_.fetch_sub(1, std::memory_order_relaxed);
  }
  ~Lock() { transport_.mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  TcpTransport& transport_;
};

/// Holds the lock; then wakes the threads of this rank whose messages have ended meanwhile.
class TcpTransport::Waking {
 public:
  explicit Waking(TcpTransport& transport) : transport_(transport), lock_(transport) {}
  ~Waking() {
    if (transport_.moved_) transport_.wakeOwn();
  }

 private:
  TcpTransport& transport_;
  Lock lock_;
};

}  // namespace ctran
