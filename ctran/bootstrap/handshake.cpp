#include "ctran/bootstrap/handshake.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <type_traits>

#include "ctran/base/clock.h"
#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/os/process.h"

namespace ctran {
namespace {

const ConfigInt kHandshakeMillis{"CTRAN_TCP_HANDSHAKE_MILLIS", 5000,
                                 "How long a caller has to prove that it belongs to "
                                 "the job before it is turned away.",
                                 1, 3600 * 1000};

constexpr uint64_t kListener = Acceptor::kSeats;  // in epoll; seats have their index,
constexpr uint64_t kProven = uint64_t{1}
                             << 32;  // those who wait for a decision their rank beside it
constexpr int kRetries = 8;
constexpr size_t kMostStrangers = 8;  // that are remembered
constexpr const char* kHungUp = "it hung up during the handshake";
constexpr const char* kHungUpOnProof =
    "it hung up during the handshake, as one does that has another key";

static_assert(sizeof(Challenge) == 40 && sizeof(Hello) == 88 && sizeof(VerdictMessage) == 40);
static_assert(std::is_trivially_copyable_v<Hello> && std::is_trivially_copyable_v<Introduction>);

/// What both ends have said, with a role in front, so that neither proof serves as the other.
struct Transcript {
  char role[8];
  uint32_t protocol;
  Verdict verdict;
  Introduction who;
  std::array<std::byte, 32> acceptorNonce, callerNonce;
};
static_assert(sizeof(Transcript) == 8 + 8 + 16 + 64);

Transcript transcript(const char (&role)[8], const Challenge& challenge, const Hello& hello,
                      Verdict verdict) {
  Transcript all{};
  std::memcpy(all.role, role, sizeof role);
  all.protocol = hello.protocol;
  all.verdict = verdict;
  all.who = hello.who;
  all.acceptorNonce = challenge.nonce;
  all.callerNonce = hello.nonce;
  return all;
}

}  // namespace

JobKey randomKey() {
  JobKey key;
  fillRandom(key.data(), key.size());
  return key;
}

const char* text(Verdict verdict) {
  switch (verdict) {
    case Verdict::Welcome:
      return "is welcome";
    case Verdict::OtherSize:
      return "was started with another world size";
    case Verdict::NoSuchRank:
      return "has a rank that is not in the world";
    case Verdict::OtherTarget:
      return "wanted another rank";
    case Verdict::RankTaken:
      return "has joined already, as another process";
    case Verdict::Enough:
      return "has as many connections to it as it may";
  }
  return "was refused";
}

Digest proofOf(const JobKey& key, const Challenge& challenge, const Hello& hello) {
  Transcript all = transcript("caller ", challenge, hello, Verdict::Welcome);
  return hmacSha256(key, bytesOf(all));
}

Digest proofOf(const JobKey& key, const Challenge& challenge, const Hello& hello, Verdict verdict) {
  Transcript all = transcript("accept ", challenge, hello, verdict);
  return hmacSha256(key, bytesOf(all));
}

Acceptor::Acceptor(std::vector<NetAddress> addresses, const JobKey& key, int rank, int size)
    : addresses_(std::move(addresses)),
      key_(key),
      rank_(rank),
      size_(size),
      isLocal_(false),
      patienceNanos_(kHandshakeMillis.get() * 1'000'000),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      listener_(listenTcp(addresses_)) {
  listen();
}

Acceptor::Acceptor(const std::string& name, const JobKey& key)
    : key_(key),
      rank_(kLocalCaller.target),
      size_(kLocalCaller.size),
      isLocal_(true),
      patienceNanos_(kHandshakeMillis.get() * 1'000'000),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      listener_(listenAbstract(name, kSeats)) {
  listen();
}

void Acceptor::listen() {
  if (!epoll_) throw systemError("epoll_create1", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListener;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0) {
    throw systemError("epoll_ctl", errno);
  }
  keepSpare();
}

/// Lets somebody in, if it has to be with the spare descriptor. Who it is, and whether it matters,
/// only shows then: a rank that failed for want of a descriptor as soon as anybody calls could be
/// ended by strangers, and by peers that need nothing. Empty when nobody waits, or when those who
/// are heard now hold the last descriptor: it comes back when they are turned away.
Socket Acceptor::accept() {
  while (true) {
    try {
      if (!isLocal_) return acceptTcp(listener_);
      Socket caller = acceptOne(listener_);
      if (!caller || peerIsTrusted(caller.fd())) return caller;
      ++refused_;
    } catch (const Error& error) {
      if (error.op() != kMakingSockets) throw;
      if (!spare_ && isHearing()) return {};
      if (!spare_) throw;
      spare_ = UniqueFd();
    }
  }
}

bool Acceptor::isHearing() const {
  return !proven_.empty() || std::any_of(seats_.begin(), seats_.end(), [](const Seat& seat) {
    return static_cast<bool>(seat.socket);
  });
}

void Acceptor::keepSpare() {
  if (!spare_) spare_ = epoll_.duplicate();
}

void Acceptor::turnAway(Seat& seat) {
  seat.socket.close();
  ++refused_;
}

void Acceptor::note(const Socket& stranger) {
  if (strangers_.size() >= kMostStrangers) return;
  if (isLocal_) {
    const pid_t pid = peerPid(stranger.fd());
    if (pid > 0) strangers_.insert("pid " + std::to_string(pid));
    return;
  }
  NetAddress address = stranger.remote();
  if (address.family == 0) return;
  const std::string text = address.text();
  strangers_.insert(text.substr(0, text.rfind(':')));
}

void Acceptor::dismiss() {
  try {
    for (size_t k = 0; k < kSeats; ++k) {
      const Socket caller = accept();
      if (!caller) break;
      note(caller);
    }
  } catch (const Error& error) {
    if (error.op() != kMakingSockets) throw;  // they wait on
  }
  keepSpare();
}

void Acceptor::seat(Socket socket, int64_t now) {
  // A caller that says nothing must not keep the others out: the oldest goes.
  Seat* seat = &seats_[0];
  for (Seat& other : seats_) {
    if (!other.socket) {
      seat = &other;
      break;
    }
    if (other.since < seat->since) seat = &other;
  }
  if (seat->socket) turnAway(*seat);
  seat->since = now;
  seat->heard = 0;
  seat->challenge = {};
  fillRandom(seat->challenge.nonce.data(), seat->challenge.nonce.size());
  seat->socket = std::move(socket);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<uint64_t>(seat - seats_.data());
  const auto message = bytesOf(seat->challenge);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, seat->socket.get(), &event) != 0 ||
      writeSome(seat->socket, message).bytes != message.size()) {
    turnAway(*seat);
  }
}

void Acceptor::hear(Seat& seat, const Admit& admit, const Take& take) {
  const IoResult read = readSome(seat.socket, bytesOf(seat.hello).subspan(seat.heard));
  if (read.end == IoResult::End::WouldBlock) return;
  if (read.end != IoResult::End::None) return turnAway(seat);
  seat.heard += read.bytes;
  // What is not ours shows in its first bytes.
  const Challenge own;
  const size_t known = std::min(seat.heard, 2 * sizeof(uint32_t));
  if (std::memcmp(&seat.hello, &own, known) != 0) return turnAway(seat);
  if (seat.heard < sizeof seat.hello) return;
  if (!sameDigest(seat.hello.proof, proofOf(key_, seat.challenge, seat.hello))) {
    note(seat.socket);
    return turnAway(seat);
  }
  if (decide(seat, admit, take)) return;
  const int rank = seat.hello.who.rank;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kProven | static_cast<uint64_t>(rank);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, seat.socket.get(), &event);
  proven_.erase(rank);
  proven_.emplace(rank, std::move(seat));
}

bool Acceptor::decide(Seat& seat, const Admit& admit, const Take& take) {
  const Introduction who = seat.hello.who;
  VerdictMessage message;
  keepSpare();
  if (who.size != size_) {
    message.verdict = Verdict::OtherSize;
  } else if (who.target != rank_) {
    message.verdict = Verdict::OtherTarget;
  } else if (who.rank < 0 || who.rank >= size_ || who.rank == rank_) {
    message.verdict = Verdict::NoSuchRank;
  } else if (const auto verdict = admit(who)) {
    message.verdict = *verdict;
  } else {
    return false;
  }
  message.proof = proofOf(key_, seat.challenge, seat.hello, message.verdict);
  const bool told = writeSome(seat.socket, bytesOf(message)).bytes == sizeof message;
  if (message.verdict != Verdict::Welcome || !told) {
    turnAway(seat);
    return true;
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, seat.socket.get(), nullptr);
  Socket socket = std::move(seat.socket);
  take(who, std::move(socket));
  return true;
}

void Acceptor::poll(const Admit& admit, const Take& take) {
  epoll_event events[16];
  const int n = ::epoll_wait(epoll_.get(), events, std::size(events), 0);
  const int64_t now = nowNanos();
  for (int i = 0; i < n; ++i) {
    const uint64_t id = events[i].data.u64;
    if (id == kListener) {
      // At most as many as there are seats; the rest are accepted next time.
      for (size_t k = 0; k < kSeats; ++k) {
        Socket socket = accept();
        if (!socket) break;
        seat(std::move(socket), now);
      }
    } else if ((id & kProven) != 0) {
      // It has nothing to say before it is told the verdict: it has hung up.
      proven_.erase(static_cast<int>(id & (kProven - 1)));
    } else if (Seat& seat = seats_[id]; seat.socket) {
      hear(seat, admit, take);
    }
  }
  for (auto next = proven_.begin(); next != proven_.end();) {
    next = decide(next->second, admit, take) ? proven_.erase(next) : std::next(next);
  }
  for (Seat& seat : seats_) {
    if (seat.socket && now - seat.since > patienceNanos_) turnAway(seat);
  }
  keepSpare();
}

Connector::Connector(std::vector<NetAddress> addresses, const JobKey& key, const Introduction& who,
                     const NetAddress& from)
    : addresses_(std::move(addresses)), from_(from), key_(key) {
  hello_.who = who;
  at_ = static_cast<size_t>(-1);
  next("it has told no address that can be reached from here");
}

Connector::Connector(Socket socket, const JobKey& key, const Introduction& who)
    : key_(key), socket_(std::move(socket)) {
  hello_.who = who;
}

bool Connector::next(const std::string& why) {
  why_ = why;
  heard_ = 0;
  while (++at_ < addresses_.size()) {
    try {
      socket_ = beginConnect(addresses_[at_], from_);
      return true;
    } catch (const Error& error) {
      if (error.op() == kMakingSockets) throw;
      why_ = error.what();
      hungUp_ = false;
    }
  }
  socket_.close();
  failed_ = true;
  return false;
}

Connector::State Connector::fail(const std::string& why, bool again) {
  const std::string where = addresses_.empty() ? why : addresses_[at_].text() + ": " + why;
  if (again) --at_;
  return next(where) ? State::Pending : State::Failed;
}

Connector::State Connector::poll() {
  if (failed_) return State::Failed;
  while (true) {
    const bool challenged = heard_ >= sizeof challenge_;
    const size_t end = sizeof challenge_ + (challenged ? sizeof answer_ : 0);
    const auto into = challenged ? bytesOf(answer_).subspan(heard_ - sizeof challenge_)
                                 : bytesOf(challenge_).subspan(heard_);
    const IoResult read = readSome(socket_, into);
    if (read.end == IoResult::End::WouldBlock) return State::Pending;
    if (read.end == IoResult::End::Closed ||
        (read.end == IoResult::End::Failed && read.error == ECONNRESET)) {
      // It may have been in a hurry with too many callers. If it is no more, the next call shows.
      hungUp_ = true;
      return fail(challenged ? kHungUpOnProof : kHungUp, /*again=*/++retries_ <= kRetries);
    }
    if (read.end == IoResult::End::Failed) {  // also when there was no connection
      hungUp_ = false;
      return fail(std::generic_category().message(read.error));
    }
    heard_ += read.bytes;
    if (heard_ < end) continue;
    if (!challenged) {
      if (challenge_.magic != kHandshakeMagic) return fail("something else listens there");
      if (challenge_.protocol != kHandshakeProtocol) {
        return fail("it runs another version of this library");
      }
      fillRandom(hello_.nonce.data(), hello_.nonce.size());
      hello_.proof = proofOf(key_, challenge_, hello_);
      const auto message = bytesOf(hello_);
      if (writeSome(socket_, message).bytes != message.size()) {
        hungUp_ = true;
        return fail(kHungUp, /*again=*/++retries_ <= kRetries);
      }
    } else {
      if (answer_.magic != kHandshakeMagic ||
          !sameDigest(answer_.proof, proofOf(key_, challenge_, hello_, answer_.verdict))) {
        return fail("it could not prove that it belongs to this job");
      }
      if (answer_.verdict == Verdict::OtherTarget) return fail("another rank listens there");
      return answer_.verdict == Verdict::Welcome ? State::Welcome : State::Refused;
    }
  }
}

}  // namespace ctran
