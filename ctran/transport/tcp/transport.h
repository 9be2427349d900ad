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
#include "ctran/base/per_rank.h"
#include "ctran/bootstrap/hand_over.h"
#include "ctran/trace/recording.h"
#include "ctran/transport/board.h"
#include "ctran/transport/ib/regions.h"
#include "ctran/transport/tcp/frame.h"
#include "ctran/transport/tcp/link.h"
#include "ctran/transport/transport.h"

namespace ctran {

/// Returns the operation that a frame belongs to, as its sender says.
OperationRecord operationOf(const FrameHeader& frame);

class IbDevice;
struct IbCard;

/// The connections of one rank to the ranks of its communicator on other hosts: one to each, made
/// when it is first needed; more where large messages go (more.cpp); and RDMA where both ends have
/// it (rdma.cpp).
class TcpTransport final : public Transport {
 public:
  /// The board is told what other ranks say they do. `failsOver`: whether a pair goes on when its
  /// RDMA connection fails; none: as CTRAN_IB_FAIL_OVER says.
  TcpTransport(Board& board, Hosts hosts, Listener& listener,
               std::optional<bool> failsOver = std::nullopt);
  ~TcpTransport() override;

  std::string_view name() const override { return "tcp"; }
  TransportAbilities abilities() const override { return {.directToUser = true}; }

  std::unique_ptr<Inbound> receive(const MessageName& name, int peer, std::byte* data, size_t bytes,
                                   const OperationRecord& operation) override;
  std::unique_ptr<Outbound> send(const MessageName& name, int peer, const std::byte* data,
                                 size_t bytes, const OperationRecord& operation) override;
  uint64_t offers() const override { return offers_.load(std::memory_order_acquire); }
  Condition offered(int peer, uint64_t seen) const override {
    return {reinterpret_cast<const std::byte*>(&offers_), 0, seen + 1, peer, peer + 1};
  }
  bool hasOffer(const MessageName& name, int peer) override;

  std::shared_ptr<void> useDirectly(std::span<std::byte> memory,
                                    std::function<bool()> isCurrent) override;
  std::shared_ptr<NamedRegions> directMemory() override;
  void shareDirectMemory(std::shared_ptr<NamedRegions> memory) override;

  std::unique_ptr<MemoryRegistration> registerMemory(std::span<std::byte> memory,
                                                     int device = kHostMemory) override;
  bool reaches(int peer, const RemoteMemory& remote, std::span<const std::byte> local) override;
  std::unique_ptr<Transfer> put(int peer, const RemoteMemory& remote, size_t offset,
                                std::span<const std::byte> source) override;
  std::unique_ptr<Transfer> get(int peer, const RemoteMemory& remote, size_t offset,
                                std::span<std::byte> destination) override;

  void connect(int peer) override;
  /// Returns whether there is a connection on which the rank has not said goodbye yet.
  bool mayHear(int peer) override;
  void tell(const Error& error) override;
  void leave(std::chrono::milliseconds limit) override;
  std::string describe(int rank) const override;
  void record(Recording* recording) override { recording_ = recording; }
  uint64_t bytesSent() const override { return bytesSent_.load(std::memory_order_relaxed); }
  bool poll() override;
  int fd() const override { return epoll_.get(); }
  /// Readable when RDMA has failed and the other end has to be told, see rdma_lost.cpp.
  int urgentFd() const override { return urgent_.get(); }

  int connections() override;
  int connections(int peer) override;
  int64_t silentNanos(int rank) override;

  uint64_t refusedCallers();

  /// Describes what messages to a rank go over, for people: "RDMA (mlx5_0:1)", or "TCP" with the
  /// reason, if it is known.
  std::string pathTo(int rank) override;

 private:
  /// How far a connection is. One that this rank has accepted is Accepted until its caller has been
  /// heard on it: so long nothing is sent that would be lost if the caller has hung up, and its end
  /// is no loss.
  ///
  ///     Unknown --connect--> Connecting --welcome--> Up --end--> Gone
  ///       |  ^               |                 ^
  ///       |  +--no answer----+                 |
  ///       +-----accept--> Accepted --heard-----+
  ///
  /// When both ranks call each other, the call of the lower one counts: it keeps the other's
  /// waiting until its own has come through, or failed.
  enum class State { Unknown, Connecting, Accepted, Up, Gone };
  struct Early {  // an eager message that is not bound yet
    std::vector<std::byte> data;
    OperationRecord operation;
    bool complete = false;
  };
  struct Peer;
  struct Connection;
  struct Rail;
  class Exposed;
  class Fetch;
  class Lock;
  class Waking;

  /// Returns a peer, which is made when it is first asked for: nothing is kept of ranks with which
  /// this rank has nothing to do.
  Peer& peerOf(int rank);
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
  void pollConnector(Connection& connection);
  void pollAcceptor();
  void heedCallers(bool heeds);
  void openDevices();
  void offer(Peer& peer, Rail& rail);
  void pushCard(Peer& peer, const Rail& rail, const IbCard& card);
  std::optional<size_t> deviceFor(const Peer& peer, const Rail& rail) const;
  void offerMore(Peer& peer);
  void sayOf(Peer& peer, const Rail& rail, FrameType what, uint64_t offset = 0);
  Rail& railOf(Peer& peer, const FrameHeader& frame);
  static Rail& railOf(Peer& peer, uint32_t index);
  void cardCame(Peer& peer, Rail& rail);
  void probe(Peer& peer, Rail& rail);
  void switchCame(Peer& peer, Rail& rail);
  bool pollRdma();
  void pollRail(Peer& peer, Rail& rail);
  void writeOverRdma(Peer& peer, const std::function<void(void*, size_t)>& written);
  void failed(Peer& peer, Rail& rail);
  void lostCame(Peer& peer, Rail& rail, uint64_t bytes);
  void fallBack(Peer& peer, Rail& rail, uint64_t bytes);
  void rdmaWoke(size_t which);
  void lookAgain(std::chrono::nanoseconds after);
  void watchUrgently(int fd, bool watches);
  void closeRdma(Peer& peer, const std::string& why);
  std::optional<IbTarget> grant(Peer& peer, const Inbound& message);
  std::shared_ptr<const IbPlacement> placementOf(Peer& peer, const Outbound& message,
                                                 const std::optional<IbTarget>& target);
  void pushPlaced(Peer& peer, Outbound& message, std::shared_ptr<const IbPlacement> placement);
  void placed(Peer& peer, const FrameHeader& frame, uint64_t bytes);
  void written(void* owner, size_t bytes);
  std::shared_ptr<IbRegion> regionOf(std::span<const std::byte> local);
  std::shared_ptr<const IbPlacement> placementAt(Peer& peer, const RemoteMemory& remote,
                                                 std::span<const std::byte> local);
  void pushInOrder(Peer& peer, Link::Outgoing frame);
  std::span<std::byte> exposedTo(const FrameHeader& frame, uint64_t bytes);
  void answerGet(Peer& peer, const FrameHeader& frame);
  std::byte* beginGot(Peer& peer, const FrameHeader& frame);
  void endGot(Peer& peer, const FrameHeader& frame);
  void withdraw(uint64_t number);
  void release(Fetch& fetch);
  std::optional<Verdict> admit(const Introduction& who);
  void giveUp(Connection& connection, const std::string& why);
  void hungUp(Connection& connection);
  void connected(Connection& connection, TcpSocket socket, State state);
  void say(Connection& connection, FrameType what);
  void pollLink(Connection& connection, uint32_t events);
  void ended(Connection& connection, const std::string& why);
  void checkLeft(Peer& peer);
  void flush(Peer& peer);
  void countSent(Peer& peer, size_t bytes);
  void recordUse(Peer& peer);
  void lose(Peer& peer, const std::string& why);
  void pushControl(Peer& peer, FrameType type, const MessageName& name, uint64_t offset,
                   const OperationRecord& operation);
  void promise(Peer& peer, Transmission& message, FrameType type);
  void tell(Peer& peer, Transmission& message, FrameType type);
  void kept(Peer& peer, Transmission& message, FrameType type);
  void pushEager(Peer& peer, Outbound& message);
  void pushData(Peer& peer, Outbound& message, const std::optional<IbTarget>& target);
  void admitWaiting(Peer& peer, uint32_t queue);
  void consume(Peer& peer, uint32_t queue, size_t bytes);
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
  void release(Inbound& message) override;
  void release(Outbound& message) override;
  void report(const Error& error);
  void wakeOwn();
  void pollLocked(int waitMillis);
  void handle(uint64_t id, uint32_t events);
  void watch(int fd, uint64_t id, uint32_t events, bool isNew);

  Recording* recording_ = nullptr;
  Board& board_;
  Listener& listener_;
  Hosts hosts_;
  const int rank_;
  const int size_;
  const std::vector<NetAddress> ownAddresses_;
  const size_t connectionsWanted_;  // connections to a peer; 0: it depends
  const std::optional<bool> failsOver_;
  UniqueFd epoll_;
  UniqueFd urgent_;  // an epoll, too, of some that `epoll_` has as well
  UniqueFd timer_;   // when to look at RDMA connections that have data on their way, or have failed

  std::atomic<uint64_t> bytesSent_{0};
  std::atomic<uint64_t> offers_{0};
  std::atomic<int> wanted_{0};  // threads that want the lock, and must not wait for polls
  std::mutex mutex_;            // guards what follows
  bool areDevicesOpen_ = false;
  bool isTimerSet_ = false;
  std::string whyNoDevices_;
  std::vector<std::unique_ptr<IbDevice>> devices_;
  IbRegions regions_;
  std::map<uint64_t, std::shared_ptr<IbRegion>> exposed_;  // memory that peers write and read
  uint64_t lastExposed_ = 0;
  uint32_t lastFetch_ = 0;
  PerRank<Peer> peers_;
  std::optional<Error> failure_;  // to be reported without the lock
  std::vector<int> left_;         // ranks that have left, reported after that
  bool moved_ = false;
  bool told_ = false;  // the others know of the failure; oddities are ignored from then on
  std::string toldText_;
  bool leaving_ = false;
  bool heedsCallers_ = true;
};

}  // namespace ctran
