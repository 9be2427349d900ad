#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ctran/base/sha256.h"
#include "ctran/os/tcp_socket.h"
#include "ctran/os/unix_socket.h"

namespace ctran {

/// Proves that two ends of a connection belong to one job, without revealing the key:
///
///   acceptor                                   caller
///   Challenge(protocol, nonce)       ->
///                                    <-  Hello(who it is, whom it wants, nonce, HMAC over all)
///   Verdict(code, HMAC over all)     ->
///
/// Until its Hello has proved the key, a caller takes one of a fixed number of the acceptor's
/// seats, and it loses the seat after a deadline. A Hello is valid for one challenge, so one that
/// was overheard is of no use. What follows the handshake is neither encrypted nor signed.
using JobKey = std::array<std::byte, 32>;

JobKey randomKey();

enum class Purpose : uint32_t {
  Link,  ///< to move data
  Join,  ///< to be told where all ranks are; a caller does so once, to rank 0
  More,  ///< to move data on another connection, in addition to a Link
};

struct Introduction {
  int32_t rank = 0;    ///< rank of the caller
  int32_t size = 0;    ///< size of the world, as the caller was told
  int32_t target = 0;  ///< the rank that it wants to reach
  Purpose purpose = Purpose::Link;
};

enum class Verdict : uint32_t { Welcome, OtherSize, NoSuchRank, OtherTarget, RankTaken, Enough };

/// Returns the verdict in words: "has joined already".
const char* text(Verdict verdict);

/// The messages have no padding.
inline constexpr uint32_t kHandshakeMagic = 0x6e727463;  // "ctrn"
inline constexpr uint32_t kHandshakeProtocol = 2;

template <class T>
std::span<std::byte> bytesOf(T& message) {
  return std::as_writable_bytes(std::span(&message, 1));
}

struct Challenge {
  uint32_t magic = kHandshakeMagic;
  uint32_t protocol = kHandshakeProtocol;
  std::array<std::byte, 32> nonce{};
};

struct Hello {
  uint32_t magic = kHandshakeMagic;
  uint32_t protocol = kHandshakeProtocol;
  Introduction who;
  std::array<std::byte, 32> nonce{};
  Digest proof{};
};

struct VerdictMessage {
  uint32_t magic = kHandshakeMagic;
  Verdict verdict = Verdict::Welcome;
  Digest proof{};
};

Digest proofOf(const JobKey& key, const Challenge& challenge, const Hello& hello);
Digest proofOf(const JobKey& key, const Challenge& challenge, const Hello& hello, Verdict verdict);

/// The accepting side of every connection of one rank: lets callers in.
class Acceptor {
 public:
  static constexpr size_t kSeats = 64;
  /// The introduction of callers of the same host. They say who they are after both ends have
  /// proved the key.
  static constexpr Introduction kLocalCaller{1, 2, 0, Purpose::Join};

  /// Decides about a caller that has proved the key and fits in; none: not yet, ask again at the
  /// next `poll`. Of each rank only the last such caller waits; it does not keep others out.
  using Admit = std::function<std::optional<Verdict>(const Introduction&)>;
  using Take = std::function<void(const Introduction&, Socket)>;

  /// Listens at `addresses`, whose ports are set.
  Acceptor(std::vector<NetAddress> addresses, const JobKey& key, int rank, int size);
  /// Listens at an abstract Unix socket, to processes of this user and of root, see callLocal.
  Acceptor(const std::string& name, const JobKey& key);

  /// From now on callers have to prove this key.
  void expect(const JobKey& key) {
    key_ = key;
    strangers_.clear();
  }
  /// From now on callers have to prove this key, and to know this size of the world, and that this
  /// is that rank.
  void expect(const JobKey& key, int size, int rank = 0) {
    expect(key);
    size_ = size;
    rank_ = rank;
  }

  const std::vector<NetAddress>& addresses() const { return addresses_; }

  /// Readable when `poll` may have something to do.
  int fd() const { return epoll_.get(); }

  /// Hears the callers, without waiting. `take` gets the connection of an admitted caller, after
  /// the caller was told so. Callers that fail, or are late, are turned away. Throws Error(System)
  /// of kMakingSockets if there is no descriptor for a caller; if there is only one, callers are
  /// heard one after the other.
  void poll(const Admit& admit, const Take& take);

  uint64_t refused() const { return refused_; }
  /// Turns away those who call now, unheard: as many as there are seats.
  void dismiss();

  /// Returns some of those who have not proved the key since it was expected, or were dismissed:
  /// "pid 12", "10.0.0.2". None is returned twice.
  std::set<std::string> takeStrangers() { return std::exchange(strangers_, {}); }

  /// Returns whether there is a descriptor left in addition to that of the caller being decided
  /// about.
  bool hasSpare() const { return static_cast<bool>(spare_); }

 private:
  struct Seat {
    Socket socket;
    int64_t since = 0;
    Challenge challenge;
    Hello hello;
    size_t heard = 0;  // bytes of the Hello that have arrived
  };

  Socket accept();
  bool isHearing() const;
  void keepSpare();
  void listen();
  void seat(Socket socket, int64_t now);
  void hear(Seat& seat, const Admit& admit, const Take& take);
  /// Returns whether the caller is decided about.
  bool decide(Seat& seat, const Admit& admit, const Take& take);
  void turnAway(Seat& seat);
  void note(const Socket& stranger);

  std::vector<NetAddress> addresses_;
  JobKey key_;
  int rank_;
  int size_;
  const bool isLocal_;
  const int64_t patienceNanos_;
  UniqueFd epoll_;
  Socket listener_;
  UniqueFd spare_;  // closed for a caller when no other descriptor is left, see accept()
  std::array<Seat, kSeats> seats_;
  std::map<int, Seat> proven_;  // by rank: those about whom nothing is decided yet
  uint64_t refused_ = 0;
  std::set<std::string> strangers_;
};

/// The calling side of one connection.
class Connector {
 public:
  enum class State { Pending, Welcome, Refused, Failed };

  /// Tries the addresses in turn. Each call leaves from `from`, an address of this host, unless it
  /// is none.
  Connector(std::vector<NetAddress> addresses, const JobKey& key, const Introduction& who,
            const NetAddress& from = {});
  /// Uses a connection that exists already.
  Connector(Socket socket, const JobKey& key, const Introduction& who);

  /// Goes on without waiting.
  State poll();

  int fd() const { return socket_.get(); }  ///< to be read from; may change with each poll
  Verdict verdict() const { return answer_.verdict; }  ///< valid when Refused
  const std::string& why() const { return why_; }      ///< valid when Failed, for people
  /// Valid when Failed: somebody listens at the last address.
  bool somebodyListens() const { return hungUp_; }
  Socket takeSocket() { return std::move(socket_); }  ///< valid when Welcome

 private:
  bool next(const std::string& why);
  /// Goes on with the next address or, with `again`, with this one.
  State fail(const std::string& why, bool again = false);

  std::vector<NetAddress> addresses_;
  size_t at_ = 0;
  const NetAddress from_;
  const JobKey key_;
  Socket socket_;
  bool failed_ = false;
  bool hungUp_ = false;
  Challenge challenge_;
  Hello hello_;
  VerdictMessage answer_;
  size_t heard_ = 0;
  int retries_ = 0;
  std::string why_;
};

}  // namespace ctran
