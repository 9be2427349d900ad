#include "ctran/bootstrap/rendezvous.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/base/rank_list.h"
#include "ctran/bootstrap/local_call.h"

namespace ctran {
namespace {

constexpr const char* kRendezvous = "rendezvous";
constexpr const char* kSecret = "MSCCLPP_SECRET";  // where mscclpp has the secret from
constexpr std::chrono::milliseconds kCallPause{10};
// How much longer than rank 0 the others wait for it, which knows best who is missing.
constexpr std::chrono::seconds kLongerThanRank0{1};

JobKey secretKey(std::string_view secret) {
  const std::string_view purpose = "ctran rendezvous";
  return Sha256()
      .add(std::as_bytes(std::span(purpose)))
      .add(std::as_bytes(std::span(secret)))
      .finish();
}

std::vector<NetAddress> nonEmpty(std::vector<NetAddress> addresses) {
  return addresses.empty() ? localAddresses() : addresses;
}

void checkWord(const std::string& word) {
  if (word.size() > Rendezvous::kMaxWord) {
    throw Error(ErrorKind::InvalidArgument, "a word of a rendezvous has at most 64 KiB", {},
                kRendezvous);
  }
}

std::string framed(const std::string& word) {
  const auto length = static_cast<uint32_t>(word.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + word;
}

std::string receiveWord(const Socket& socket, int from, Deadline deadline,
                        const Interrupt& interrupt) {
  uint32_t length = 0;
  receiveAll(socket.fd(), std::as_writable_bytes(std::span(&length, 1)), 0, deadline, interrupt);
  std::string word(
      Checked(length).atMost(Rendezvous::kMaxWord, from, "bytes of a word", kRendezvous), 0);
  receiveAll(socket.fd(), std::as_writable_bytes(std::span(word)), 0, deadline, interrupt);
  return word;
}

/// Rank 0's answer begins with the ranks that did not come. If there are none, all words follow.
std::string answerOf(const std::vector<int>& absent) {
  std::string raw;
  for (const int rank : absent) {
    if (raw.size() + sizeof rank > Rendezvous::kMaxWord) break;
    raw.append(reinterpret_cast<const char*>(&rank), sizeof rank);
  }
  return framed(raw);
}

std::vector<int> receiveAbsent(const Socket& socket, int size, Deadline deadline,
                               const Interrupt& interrupt) {
  const std::string raw = receiveWord(socket, 0, deadline, interrupt);
  std::vector<int> absent(raw.size() / sizeof(int));
  if (absent.empty()) return absent;
  std::memcpy(absent.data(), raw.data(), absent.size() * sizeof(int));
  for (const int rank : absent) {
    static_cast<void>(Checked(static_cast<uint32_t>(rank))
                          .atMost(size - 1, 0, "as a rank that did not come", kRendezvous));
  }
  return absent;
}

Error didNotCome(const NetAddress& where, const std::vector<int>& absent, int size,
                 const std::string& stranger = {}) {
  return Error(
      ErrorKind::Timeout,
      "waited at " + where.text() + " for ranks " + listed(absent) + " of " + std::to_string(size) +
          ", who did not come" +
          (stranger.empty() ? "" : "; a caller from " + stranger + " has another secret"),
      absent, kRendezvous,
      std::string("see whether they run, with this address and this secret (") + kSecret + ")");
}

/// `error` as one of `rank`.
Error of(int rank, const Error& error) {
  const bool lost = error.kind() == ErrorKind::PeerLost;
  return Error(error.kind(),
               (lost ? "lost rank " : "rank ") + std::to_string(rank) + ": " + error.what(), {rank},
               kRendezvous);
}

}  // namespace

NetAddress parseNetAddress(const std::string& text) {
  const auto bad = [&] {
    return Error(ErrorKind::InvalidArgument, "'" + text + "' is no address with a port", {},
                 kRendezvous, "10.0.0.1:1234 or [fd00::1]:1234");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw bad();
  std::string ip = text.substr(0, colon);
  if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') ip = ip.substr(1, ip.size() - 2);
  NetAddress address;
  const char* const end = text.data() + text.size();
  const auto port = std::from_chars(text.data() + colon + 1, end, address.port);
  if (port.ec != std::errc() || port.ptr != end) throw bad();
  if (::inet_pton(AF_INET, ip.c_str(), address.ip.data()) == 1) {
    address.family = 4;
  } else if (::inet_pton(AF_INET6, ip.c_str(), address.ip.data()) == 1) {
    address.family = 6;
  } else {
    throw bad();
  }
  return address;
}

Rendezvous::Rendezvous(std::vector<NetAddress> addresses, std::string_view key)
    : key_(secretKey(key)), acceptor_(nonEmpty(std::move(addresses)), key_, 0, 1) {}

std::vector<std::string> Rendezvous::gather(int size, const std::string& word, Deadline deadline,
                                            const Interrupt& interrupt) {
  checkWord(word);
  if (size < 1)
    throw Error(ErrorKind::InvalidArgument, "a rendezvous has at least one rank", {}, kRendezvous);
  acceptor_.expect(key_, size);
  std::vector<Socket> sockets(size);
  int missing = size - 1;
  const auto admit = [&](const Introduction& who) -> std::optional<Verdict> {
    return sockets[who.rank] || who.rank == 0 ? Verdict::RankTaken : Verdict::Welcome;
  };
  const auto take = [&](const Introduction& who, Socket socket) {
    sockets[who.rank] = std::move(socket);
    --missing;
  };
  std::string stranger;
  while (missing > 0) {
    acceptor_.poll(admit, take);
    if (missing == 0) break;
    if (stranger.empty()) {
      const std::set<std::string> strangers = acceptor_.takeStrangers();
      if (!strangers.empty()) {
        stranger = *strangers.begin();
        log(LogComponent::Bootstrap, LogLevel::Warn, "a caller from %s has another secret (%s)",
            stranger.c_str(), kSecret);
      }
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      std::vector<int> absent;
      for (int r = 1; r < size; ++r) {
        if (!sockets[r]) absent.push_back(r);
      }
      const std::string answer = answerOf(absent);
      const Deadline soon = std::chrono::steady_clock::now() + kLongerThanRank0;
      for (int r = 1; r < size; ++r) {
        if (!sockets[r]) continue;
        try {  // its word first: a connection that is closed with something unread loses the answer
          static_cast<void>(receiveWord(sockets[r], r, soon, interrupt));
          sendAll(sockets[r].fd(), std::as_bytes(std::span(answer)), {}, soon, interrupt);
        } catch (const Error&) {  // it has left
        }
      }
      throw didNotCome(acceptor_.addresses()[0], absent, size, stranger);
    }
    if (interrupt) interrupt();
    std::this_thread::sleep_for(kCallPause / 10);
  }
  std::vector<std::string> words(size);
  words[0] = word;
  std::string all = answerOf({});
  for (int r = 0; r < size; ++r) {
    try {
      if (r > 0) words[r] = receiveWord(sockets[r], r, deadline, interrupt);
    } catch (const Error& error) {
      throw of(r, error);
    }
    all += framed(words[r]);
  }
  for (int r = 1; r < size; ++r) {
    try {
      sendAll(sockets[r].fd(), std::as_bytes(std::span(all)), {}, deadline, interrupt);
    } catch (const Error& error) {
      throw of(r, error);
    }
  }
  return words;
}

std::vector<std::string> Rendezvous::join(const std::vector<NetAddress>& addresses,
                                          std::string_view key, int rank, int size,
                                          const std::string& word, Deadline deadline,
                                          const Interrupt& interrupt) {
  checkWord(word);
  std::string why;
  while (true) {
    Connector connector(addresses, secretKey(key), {rank, size, 0, Purpose::Join});
    Connector::State state = Connector::State::Pending;
    try {
      state = awaitVerdict(connector, deadline, interrupt);
      // That it has gone since says less than the reason why it hung up.
      const bool isFailed = state == Connector::State::Failed;
      if (isFailed && (why.empty() || connector.somebodyListens())) why = connector.why();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Timeout) throw;
      if (why.empty()) why = error.what();
    }
    if (state == Connector::State::Refused) {
      throw Error(ErrorKind::InvalidArgument,
                  "rank " + std::to_string(rank) + " cannot join: it " + text(connector.verdict()),
                  {rank}, kRendezvous);
    }
    if (state == Connector::State::Welcome) {
      const Socket socket = connector.takeSocket();
      std::vector<int> absent;
      try {
        const std::string own = framed(word);
        sendAll(socket.fd(), std::as_bytes(std::span(own)), {}, deadline, interrupt);
        absent = receiveAbsent(socket, size, deadline + kLongerThanRank0, interrupt);
        if (absent.empty()) {
          std::vector<std::string> words;
          for (int r = 0; r < size; ++r) {
            words.push_back(receiveWord(socket, 0, deadline + kLongerThanRank0, interrupt));
          }
          return words;
        }
      } catch (const Error& error) {
        throw of(0, error);
      }
      throw didNotCome(addresses[0], absent, size);
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(ErrorKind::Timeout, "rank " + std::to_string(rank) + " found no rank 0: " + why,
                  {0}, kRendezvous,
                  std::string("see whether rank 0 runs, with this address and this secret (") +
                      kSecret + ")");
    }
    if (interrupt) interrupt();
    std::this_thread::sleep_for(kCallPause);
  }
}

}  // namespace ctran
