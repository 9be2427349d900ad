#pragma once

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "ctran/transport/tcp/transport.h"

namespace ctran {

/// In epoll; connections have the rank of their peer.
inline constexpr uint64_t kDoorman = UINT64_MAX;

/// What this rank knows of another one, and has with it.
struct TcpTransport::Peer final : Link::Reader {
  Peer(TcpTransport& transport, int rank) : transport(transport), rank(rank) {}

  TcpTransport& transport;
  const int rank;
  State state = State::Unknown;
  std::unique_ptr<Caller> caller;
  int callerFd = -1;
  Link link;
  bool wantsToWrite = false;  // epoll tells when the socket has room
  bool hasLeft = false;       // has said goodbye
  bool isNear = false;        // shares this rank's board, in which it writes itself

  std::map<MessageName, Inbound*> bound;      // not complete
  std::set<MessageName> forsaken;             // the peer may send them, but their operation failed
  std::map<MessageName, Early> early;         // complete, or on the way, and not bound
  std::map<MessageName, OtherEnd> announced;  // larger ones that are not bound
  std::map<MessageName, OtherEnd> ready;      // that the peer has bound, and that were not sent yet
  std::map<MessageName, Outbound*> unready;   // that the peer has not bound yet

  struct Window {
    size_t used = 0;                // of the peer's memory, by what was sent
    std::deque<Outbound*> waiting;  // for room in it
    size_t held = 0;                // of this rank's memory, as the peer counts
    size_t consumed = 0;            // of that, to be told to the peer
  };
  Window windows[kLanes];

  // Where the payload that is being read belongs.
  Inbound* inbound = nullptr;
  Early* arriving = nullptr;
  std::vector<std::byte> failure;

  uint64_t lastRecord = 0;
  MessageName lastMessage;

  std::byte* begin(const FrameHeader& frame) override;
  void end(const FrameHeader& frame) override;

  /// Whether an operation of this rank waits for it.
  bool isNeeded() const {
    const auto waits = [](const Window& window) { return !window.waiting.empty(); };
    return !bound.empty() || !unready.empty() || link.hasOutput() ||
           std::any_of(std::begin(windows), std::end(windows), waits);
  }
  /// Whether the link may carry what is in it.
  bool isOpen() const {
    return state == State::Up ||
           (state == State::Accepted && (transport.told_ || transport.leaving_));
  }

 private:
  std::byte* beginEager(const FrameHeader& frame);
  std::byte* beginData(const FrameHeader& frame);
  Inbound* find(const MessageName& name) {
    const auto found = bound.find(name);
    return found == bound.end() ? nullptr : found->second;
  }
};

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
