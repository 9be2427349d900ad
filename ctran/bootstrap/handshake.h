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

/// Proves that two ends of a connection belong to one job, without telling anybody the key:
///
///   acceptor                                   caller
///   Challenge(protocol, nonce)       ->
///                                    <-  Hello(who it is, whom it wants, nonce, HMAC over all)
///   Verdict(code, HMAC over all)     ->
///
/// Until the Hello has proved the key, a caller has cost the acceptor one of a fixed number of
/// seats, and it loses that after a deadline. A Hello is good for one challenge, so one that was
/// overheard is of no use. What follows the handshake is neither encrypted nor signed.
using JobKey = std::array<std::byte, 32>;

JobKey randomKey();

enum class Purpose : uint32_t {
  Link,  ///< to move data
  Join,  ///< to be told where all ranks are; to rank 0, once
  More,  ///< to move data on one more connection, beside a Link
};

struct Introduction {
  int32_t rank = 0;    ///< of the caller
  int32_t size = 0;    ///< of the world, as the caller was told
  int32_t target = 0;  ///< the rank it wants to speak with
  Purpose purpose = Purpose::Link;
};

enum class Verdict : uint32_t { Welcome, OtherSize, NoSuchRank, OtherTarget, RankTaken, Enough };

/// How it is put to people: "has joined already".
const char* text(Verdict verdict);

/// The messages, which have no padding.
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

/// Lets callers in: the accepting side of every connection of one rank.
class Doorman {
 public:
  static constexpr size_t kSeats = 64;
  /// What callers of the same host say: who they are follows when both ends have proved the key.
  static constexpr Introduction kLocalCaller{1, 2, 0, Purpose::Join};

  /// Decides about a caller that has proved the key and fits in; or not yet, and is asked again at
  /// the next `poll`. Of each rank one caller waits for that, the last, and keeps nobody out.
  using Admit = std::function<std::optional<Verdict>(const Introduction&)>;
  using Take = std::function<void(const Introduction&, Socket)>;

  /// Listens at `addresses`, whose ports are set.
  Doorman(std::vector<NetAddress> addresses, const JobKey& key, int rank, int size);
  /// Listens at an abstract Unix socket, to processes of this user and of root: see callLocal.
  Doorman(const std::string& name, const JobKey& key);

  /// Who calls from now on has to prove this key,
  void expect(const JobKey& key) {
    key_ = key;
    strangers_.clear();
  }
  /// and to know this size of the world, and that this is that rank.
  void expect(const JobKey& key, int size, int rank = 0) {
    expect(key);
    size_ = size;
    rank_ = rank;
  }

  const std::vector<NetAddress>& addresses() const { return addresses_; }

  /// Readable when `poll` may have something to do.
  int fd() const { return epoll_.get(); }

  /// Hears the callers, without waiting. `take` gets the connection of one that was admitted, after
  /// it was told of its welcome. Those who fail, or are late, are turned away. Throws Error(System)
  /// of kMakingSockets when there is no descriptor for a caller; as long as there is one, they are
  /// heard one after the other.
  void poll(const Admit& admit, const Take& take);

  uint64_t refused() const { return refused_; }
  /// Turns away those who call, unheard: as many as there are seats.
  void dismiss();

  /// Some of those who have not proved the key since it was expected, or were dismissed: "pid 12",
  /// "10.0.0.2". None more than once.
  std::set<std::string> takeStrangers() { return std::exchange(strangers_, {}); }

  /// Whether there is a descriptor left beside that of the caller who is being decided about.
  bool hasSpare() const { return static_cast<bool>(spare_); }

 private:
  struct Seat {
    Socket socket;
    int64_t since = 0;
    Challenge challenge;
    Hello hello;
    size_t heard = 0;  // bytes of the hello
  };

  Socket accept();
  bool isHearing() const;
  void keepSpare();
  void listen();
  void seat(Socket socket, int64_t now);
  void hear(Seat& seat, const Admit& admit, const Take& take);
  /// Whether it is decided.
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
  UniqueFd spare_;  // is closed for a caller when nothing else is left; see accept()
  std::array<Seat, kSeats> seats_;
  std::map<int, Seat> proven_;  // by rank: those about whom nothing is decided yet
  uint64_t refused_ = 0;
  std::set<std::string> strangers_;
};

/// The calling side of one connection.
class Caller {
 public:
  enum class State { Pending, Welcome, Refused, Failed };

  /// Tries the addresses in turn, each from an address of this host, unless that is none.
  Caller(std::vector<NetAddress> addresses, const JobKey& key, const Introduction& who,
         const NetAddress& from = {});
  /// Over a connection that there is already.
  Caller(Socket socket, const JobKey& key, const Introduction& who);

  /// Goes on without waiting.
  State poll();

  int fd() const { return socket_.get(); }  ///< to be read from; may be another after each poll
  Verdict verdict() const { return answer_.verdict; }  ///< when Refused
  const std::string& why() const { return why_; }      ///< when Failed, for people
  bool somebodyListens() const { return hungUp_; }     ///< when Failed, at the last address
  Socket takeSocket() { return std::move(socket_); }   ///< when Welcome

 private:
  bool next(const std::string& why);
  /// Goes on with the next address, or `again` with this one.
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
