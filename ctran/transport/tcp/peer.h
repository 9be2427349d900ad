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

/// The number of the acceptor in epoll. Connectors and connections have their peer's rank, see
/// connections.cpp.
inline constexpr uint64_t kAcceptor = UINT64_MAX;
/// The number of the first RDMA device in epoll; others follow.
inline constexpr uint64_t kDevices = uint64_t{1} << 41;

/// Returns the owner of the frames of a message. A Fetch owns its frames in the same way.
inline void* ownerOf(Transmission& message) { return &message; }

/// Makes the header of a frame of a message.
FrameHeader headerOf(FrameType type, size_t bytes, const Transmission& message, uint64_t offset);

/// One of the connections to a peer. All but the first carry Data only. They come and go as the
/// first one does (see State), with two exceptions: the lower rank makes all of them, and one that
/// cannot be made is not missed.
struct TcpTransport::Connection final : Link::Reader {
  Connection(Peer& peer, uint32_t index) : peer(peer), index(index) {}

  Peer& peer;
  const uint32_t index;
  State state = State::Unknown;
  std::unique_ptr<Connector> connector;
  int connectorFd = -1;
  Link link;
  bool wantsToWrite = false;  // epoll reports when the socket has room
  bool hasLeft = false;       // the peer has said goodbye on it

  // What follows is where the payload that is being read belongs.
  Inbound* inbound = nullptr;
  Early* arriving = nullptr;
  std::vector<std::byte> failure;
  IbTarget target;
  uint64_t placedBytes = 0;

  bool isFirst() const { return index == 0; }
  /// What is read over RDMA has objects of this kind, too, without a socket: one for each rail.
  static constexpr uint32_t kRails = 1u << 16;
  bool isRdma() const { return index >= kRails; }
  /// Returns whether it carries everything; the others carry Data, and Placed over RDMA.
  bool isMain() const { return isFirst() || index == kRails; }
  bool isThere() const { return state == State::Up || state == State::Accepted; }
  /// Returns whether the link may carry the frames in it.
  bool isOpen() const;

  void stopConnecting() {
    connector.reset();
    connectorFd = -1;
  }
  void close(State as) {
    stopConnecting();
    link.close();
    state = as;
  }
  /// From now on nothing is written to the memory of that message.
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
  bool isProven = false, isProvenThere = false;  // a write has passed: ours, and the peer's
  bool sends = false, hasSwitched = false;       // our direction is in use, and the peer's
  uint32_t attempts = 0;                         // number of attempts before this one
  int64_t failedAt = 0;                          // in nanoseconds; negative: closed
  bool wasUsed = false;                          // at its failure
  bool saysLost = false;                         // has sent Lost, and waits for the peer's
  std::vector<std::byte> card = {};
};

/// What this rank knows of another one, and the connections to it.
struct TcpTransport::Peer {
  Peer(TcpTransport& transport, int rank) : transport(transport), rank(rank) {
    connections.push_back(std::make_unique<Connection>(*this, 0));
    rails.push_back(std::make_unique<Rail>(*this, 0));
  }

  TcpTransport& transport;
  const int rank;
  std::vector<std::unique_ptr<Connection>> connections;  // the first is always there
  Link::Frames bulk;                                     // Data that no connection has taken yet
  RecordedLink* recorded = nullptr;                      // null: not recorded, or not yet
  int64_t lookedAt = 0;    // nanoseconds; last look at how the connections are used
  uint64_t bulkBytes = 0;  // in large messages so far, in both directions
  bool hasCalledMore = false;
  bool hasLeft = false;  // has said goodbye on all connections
  bool isNear = false;   // shares this rank's board, and writes its own part

  std::vector<std::unique_ptr<Rail>> rails;  // the first is always there
  std::string whyNoRdma;                     // why this pair has no RDMA
  uint64_t messagesPlaced = 0;
  std::map<uint32_t, Fetch*> asked;  // sent over the connection, and not answered
  Link::Frames held;                 // frames that leave when these are answered

  std::map<MessageName, Inbound*> bound;      // messages that are not complete
  std::set<MessageName> forsaken;             // the peer may send these, but their operation failed
  std::map<MessageName, Early> early;         // complete or arriving messages that are not bound
  std::map<MessageName, OtherEnd> announced;  // larger messages that are not bound
  struct Ready {
    OtherEnd other;
    std::optional<IbTarget> target;
  };
  // Messages that the peer has bound, and that were not sent yet.
  std::map<MessageName, Ready> ready;
  // The peer may place these; holds their keys.
  std::map<MessageName, std::shared_ptr<IbRegion>> granted;
  std::map<MessageName, Outbound*> unready;  // messages that the peer has not bound yet

  /// Announcements of messages, or of readiness for them. The peer takes kMaxPromises of each
  /// before it has come to them.
  struct Promises {
    size_t told = 0;              // number of those that the peer may not have come to
    std::set<MessageName> later;  // sent when there is room
  };
  Promises announcements, readiness;
  Promises& promises(FrameType type) {
    return type == FrameType::Announce ? announcements : readiness;
  }

  struct Window {
    size_t used = 0;                // bytes of the peer's memory that sent messages take
    std::deque<Outbound*> waiting;  // wait for room in it
    size_t held = 0;                // bytes of this rank's memory, as the peer counts
    size_t consumed = 0;  // bytes of these that are free again, but not yet told to the peer
  };
  Window windows[kQueues];

  uint64_t lastRecord = 0;
  MessageName lastMessage;

  Connection& first() const { return *connections.front(); }
  /// Returns the rail that carries everything.
  Rail& main() const { return *rails.front(); }
  bool sendsOverRdma() const { return main().sends; }
  bool hasRdma() const { return main().link && !main().link->hasFailed(); }
  State state() const { return first().state; }
  bool isThere() const { return first().isThere(); }
  /// Returns how many of the connections exist.
  int connectionsThere() const {
    return static_cast<int>(std::count_if(connections.begin(), connections.end(),
                                          [](const auto& each) { return each->isThere(); }));
  }

  /// Sends what the peer is to read after everything that was sent before.
  void push(Link::Outgoing frame) {
    if (sendsOverRdma()) {
      main().link->push(std::move(frame));
    } else {
      transport.pushInOrder(*this, std::move(frame));
    }
  }

  /// Returns whether several connections share the data.
  bool isShared() const { return connections.size() > 1; }
  /// Returns whether something waits to be sent.
  bool hasOutput() const {
    const auto holds = [](const auto& rail) { return rail->sends && rail->link->hasOutput(); };
    return !bulk.empty() || std::any_of(rails.begin(), rails.end(), holds) ||
           std::any_of(connections.begin(), connections.end(),
                       [](const auto& each) { return each->link.hasOutput(); });
  }
  /// Returns whether an operation of this rank waits for the peer.
  bool isNeeded() const {
    const auto waits = [](const Window& window) { return !window.waiting.empty(); };
    return !bound.empty() || !unready.empty() || hasOutput() ||
           std::any_of(std::begin(windows), std::end(windows), waits);
  }
  /// Returns, among the connections that have room, the one with the least data on its way; it
  /// takes the next bulk data, so that each gets as much as it moves. Null if none has room.
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

/// Holds the lock. A thread that polls again and again sees that others wait for it, and leaves it
/// to them.
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
