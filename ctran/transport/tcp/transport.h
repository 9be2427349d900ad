#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/bootstrap/hand_over.h"
#include "ctran/transport/board.h"
#include "ctran/transport/condition.h"
#include "ctran/transport/tcp/frame.h"
#include "ctran/transport/tcp/link.h"

namespace ctran {

class TcpTransport;

/// The operation that a frame is of, as its sender says.
OperationRecord operationOf(const FrameHeader& frame);

/// What one end says of a message when the other's is not as it should be.
struct OtherEnd {
  uint64_t bytes = 0;
  OperationRecord operation;
};

/// One end of a message, for as long as its memory is bound. Ending it early, as a failed operation
/// does, lets go of the memory.
class Transmission {
 public:
  Transmission(TcpTransport& transport, const MessageName& name, int peer, size_t bytes,
               const OperationRecord& operation)
      : transport(transport), name(name), peer(peer), bytes(bytes), operation(operation) {}
  Transmission(const Transmission&) = delete;
  Transmission& operator=(const Transmission&) = delete;
  virtual ~Transmission() = default;

  /// That it has ended, in one way or another.
  Condition ended() const {
    return {reinterpret_cast<const std::byte*>(&progress), 0, kEnded, peer, peer + 1};
  }

  TcpTransport& transport;
  const MessageName name;
  const int peer;
  const size_t bytes;
  const OperationRecord operation;
  std::atomic<uint64_t> progress{0};
  size_t moved = 0;      ///< bytes; guarded by the transport
  bool isTold = false;   ///< the peer has been told of it: announced, or that this rank is ready
  bool isWrong = false;  ///< the sizes of both ends differ; known once it has ended
  OtherEnd other;        ///< known once it has ended

  static constexpr uint64_t kEnded = 1;
};

/// To be received. Ended when all of it has come.
class Inbound final : public Transmission {
 public:
  Inbound(TcpTransport& transport, const MessageName& name, int peer, std::byte* data, size_t bytes,
          const OperationRecord& operation)
      : Transmission(transport, name, peer, bytes, operation), data(data) {}
  ~Inbound() override;
  std::byte* const data;
};

/// To be sent. Ended when the operating system has all of it: the memory may be used again.
class Outbound final : public Transmission {
 public:
  Outbound(TcpTransport& transport, const MessageName& name, int peer, const std::byte* data,
           size_t bytes, const OperationRecord& operation)
      : Transmission(transport, name, peer, bytes, operation), data(data) {}
  ~Outbound() override;
  const std::byte* const data;
};

/// The connections of one rank to the ranks of its communicator on other hosts: one to each, made
/// when it is first needed, and more where large messages go (more.cpp). Never blocks: whoever
/// waits calls `poll`. Any thread.
class TcpTransport final {
 public:
  /// What the transport hears of the others; called without locks of its own by those who poll.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void failed(const Error& error) = 0;
    /// Something has moved: threads of this rank that sleep have to look again.
    virtual void wakeUp() = 0;
  };

  /// The board gets what others say they do.
  TcpTransport(Board& board, Hosts hosts, Listener& listener);
  ~TcpTransport();

  /// Binds memory to a message. Its sender may be further than this rank, or not there yet.
  std::unique_ptr<Inbound> receive(const MessageName& name, int peer, std::byte* data, size_t bytes,
                                   const OperationRecord& operation);
  std::unique_ptr<Outbound> send(const MessageName& name, int peer, const std::byte* data,
                                 size_t bytes, const OperationRecord& operation);

  // For who takes a message from whoever sends one first: what is on offer is not bound yet.

  /// The number of messages that have been offered so far.
  uint64_t offers() const { return offers_.load(std::memory_order_acquire); }
  /// That there are more than `seen`; of that rank, as far as known.
  Condition offered(int peer, uint64_t seen) const {
    return {reinterpret_cast<const std::byte*>(&offers_), 0, seen + 1, peer, peer + 1};
  }
  bool hasOffer(const MessageName& name, int peer);

  /// Begins to connect to a rank, so that both can tell each other of failures.
  void connect(int peer);

  /// Moves what can be moved; whether something happened, here or to a waiting operation.
  bool poll();
  int fd() const { return epoll_.get(); }  ///< readable when `poll` may have something to do

  /// Whether something that the rank has sent may still be on its way: there is a connection, on
  /// which it has not said goodbye yet.
  bool mayHear(int peer);

  /// Tells the others, those that are connected, of the failure of this communicator; they pass it
  /// on.
  void tell(const Error& error);

  /// Says goodbye to the peers and closes, when all that was sent has arrived, or after `limit`.
  void leave(std::chrono::milliseconds limit);

  /// Where a rank is, for people: "rank 3 on node7 (pid 12)".
  std::string describe(int rank) const;
  uint64_t refusedCallers();
  int connections();          ///< peers to whom there is a connection,
  int connections(int peer);  ///< and how many there are to one of them
  /// Bytes of messages, without their headers, that this rank has been given for other ranks.
  uint64_t bytesSent() const { return bytesSent_.load(std::memory_order_relaxed); }

 private:
  friend class Inbound;
  friend class Outbound;
  /// How far a connection is. One that this rank has accepted is Accepted until its caller has been
  /// heard on it: so long nothing is sent that would be lost if the caller has hung up, and its end
  /// is no loss.
  ///
  ///     Unknown --call--> Calling --welcome--> Up --end--> Gone
  ///       |  ^               |                 ^
  ///       |  +--no answer----+                 |
  ///       +-----accept--> Accepted --heard-----+
  ///
  /// When both ranks call each other, the call of the lower one counts: it keeps the other's
  /// waiting until its own has come through, or failed.
  enum class State { Unknown, Calling, Accepted, Up, Gone };
  struct Early {  // an eager message that is not bound yet
    std::vector<std::byte> data;
    OperationRecord operation;
    bool complete = false;
  };
  struct Peer;
  struct Connection;
  class Lock;
  class Waking;

  Peer& peerOf(int rank) { return *peers_[rank]; }
  bool isOnThisMachine(int rank) const;
  std::vector<NetAddress> addressesOf(int rank) const;
  void ensure(Peer& peer);
  void call(Connection& connection, const std::vector<NetAddress>& addresses,
            const NetAddress& from, Purpose purpose);
  void countBulk(Peer& peer, size_t bytes);
  void callMore(Peer& peer);
  std::vector<NetPath> morePaths(const Peer& peer) const;
  void doWithout(const Peer& peer, const std::string& why) const;
  static Connection* unused(Peer& peer);
  static size_t wantedConnections();
  void pollCaller(Connection& connection);
  void pollDoorman();
  void heedCallers(bool heeds);
  std::optional<Verdict> admit(const Introduction& who);
  void giveUp(Connection& connection, const std::string& why);
  void hungUp(Connection& connection);
  void connected(Connection& connection, TcpSocket socket, State state);
  void say(Connection& connection, FrameType what);
  void pollLink(Connection& connection, uint32_t events);
  void ended(Connection& connection, const std::string& why);
  void checkLeft(Peer& peer);
  void flush(Peer& peer);
  void lose(Peer& peer, const std::string& why);
  void pushControl(Peer& peer, FrameType type, const MessageName& name, uint64_t offset,
                   const OperationRecord& operation);
  void promise(Peer& peer, Transmission& message, FrameType type);
  void tell(Peer& peer, Transmission& message, FrameType type);
  void kept(Peer& peer, Transmission& message, FrameType type);
  void pushEager(Peer& peer, Outbound& message);
  void pushData(Peer& peer, Outbound& message);
  void admitWaiting(Peer& peer, uint32_t lane);
  void consume(Peer& peer, uint32_t lane, size_t bytes);
  void finish(Transmission& message);
  void finishWrong(Transmission& message, const OtherEnd& other);
  void deliver(Peer& peer, Inbound& message, Early& early);
  void sendToSelf(Outbound& message);
  void receiveFromSelf(Inbound& message);
  void received(Inbound& message, size_t bytes);
  void heard(Peer& peer, const FrameHeader& frame);
  void failureCame(Peer& peer, const std::string& text);
  void pushFailure(Peer& peer);
  void offer(const MessageName& name);
  void forget(Inbound& message);
  void forget(Outbound& message);
  void report(const Error& error);
  void wakeOwn();
  void pollLocked(int waitMillis);
  void handle(uint64_t id, uint32_t events);
  void watch(int fd, uint64_t id, uint32_t events, bool isNew);

  Board& board_;
  Listener& listener_;
  Hosts hosts_;
  const int rank_;
  const int size_;
  const std::vector<NetAddress> ownAddresses_;
  const size_t connectionsWanted_;  // to a peer; 0: depends
  UniqueFd epoll_;

  std::atomic<uint64_t> bytesSent_{0};
  std::atomic<uint64_t> offers_{0};
  std::atomic<int> wanted_{0};  // threads that want the lock, and must not wait for polls
  std::mutex mutex_;            // guards what follows
  std::vector<std::unique_ptr<Peer>> peers_;
  std::optional<Error> failure_;  // to be reported without the lock,
  std::vector<int> left_;         // and then who has left
  bool moved_ = false;
  bool told_ = false;  // the others know of the failure; what is odd from then on is ignored
  std::string toldText_;
  bool leaving_ = false;
  bool heedsCallers_ = true;
};

}  // namespace ctran
