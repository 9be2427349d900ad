#include "torchcomms/csrc/backends/nccl/out_of_band.hpp"

#include <algorithm>
#include <charconv>
#include <comms/torchcomms/TorchWork.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "ctran/stream/watchdog.h"
#include "torchcomms/csrc/backends/ctran/store.hpp"

namespace torch::comms::nccl {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr const char* kErrorKey = "broken";
constexpr milliseconds kPause{20};
/// How long a communicator that is made waits for the store to say who runs on this host.
constexpr milliseconds kPeersPatience{5000};
/// How long one that leaves waits for the store to note it.
constexpr milliseconds kLeavingPatience{1000};

std::string waitingKey(int rank) { return "waiting/" + std::to_string(rank); }

/// Another connection to the same store, where this torch can make one.
template <typename Store>
c10::intrusive_ptr<Store> cloned(const c10::intrusive_ptr<Store>& store) {
  if constexpr (requires { store->clone(); }) {
    return store->clone();
  } else {
    return store;
  }
}

/// Now, while its host is there: later the attempt could take as long as the store's timeout.
StorePtr ownConnection(const StorePtr& store) {
  const auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store);
  const auto base = prefixed ? prefixed->getUnderlyingNonPrefixStore() : store;
  const bool remote = c10::dynamic_intrusive_pointer_cast<c10d::TCPStore>(base).defined();
  return remote ? cloned(store) : store;
}

StorePtr partOf(const StorePtr& store, const std::string& name) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

std::string textOf(const std::vector<uint8_t>& value) { return {value.begin(), value.end()}; }

/// "kind rank text": the rank is whom the error names, the one that is lost or that gave up.
std::optional<ctran::Error> parsed(const std::string& text) {
  int kind = 0;
  int rank = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, kind);
  if (first.ec != std::errc() || first.ptr == end) return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, rank);
  if (second.ec != std::errc() || second.ptr == end) return std::nullopt;
  return ctran::Error(static_cast<ctran::ErrorKind>(kind), std::string(second.ptr + 1, end),
                      {rank});
}

}  // namespace

OutOfBand::OutOfBand(StorePtr store, StorePtr own, int rank, int size)
    : store_(std::move(store)),
      own_(std::move(own)),
      rank_(rank),
      size_(size),
      peers_(store_, rank) {
  peers_.introduce();
}

std::shared_ptr<OutOfBand> OutOfBand::open(StorePtr store, int rank, int size) {
  const HostWait wait;
  StorePtr own = ownConnection(store);
  return std::shared_ptr<OutOfBand>(new OutOfBand(std::move(store), std::move(own), rank, size));
}

std::shared_ptr<OutOfBand> OutOfBand::part(const std::string& name, int rank, int size) const {
  return std::shared_ptr<OutOfBand>(
      new OutOfBand(partOf(store_, name), partOf(own_, name), rank, size));
}

template <typename Answer, typename Question>
std::future<Answer> OutOfBand::ask(Question question) {
  auto answer = std::make_shared<std::promise<Answer>>();
  std::future<Answer> future = answer->get_future();
  const auto run = [self = shared_from_this(), answer, question] {
    try {
      answer->set_value(question(*self));
    } catch (const std::exception&) {
      answer->set_value({});
    }
  };
  try {
    ctran::Watchdog::spawn("nccl-out-of-band", run);
  } catch (const ctran::Error&) {  // there are no more threads
    answer->set_value({});
  }
  return future;
}

std::vector<std::string> OutOfBand::exchange(const std::string& name, const std::string& own,
                                             milliseconds timeout) {
  C10dStore keys(store_);
  const auto keyOf = [&](int rank) { return name + "/" + std::to_string(rank); };
  const Clock::time_point deadline = Clock::now() + timeout;
  keys.set(keyOf(rank_), own);
  std::vector<std::string> all;
  for (int r = 0; r < size_; ++r) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    try {
      all.push_back(r == rank_ ? own : keys.get(keyOf(r), std::max(left, milliseconds(1))));
    } catch (const ctran::Error& error) {
      if (error.kind() != ctran::ErrorKind::Timeout) throw;
      throw ctran::Error(ctran::ErrorKind::Timeout,
                         "Rank " + std::to_string(r) + " has not come to '" + name + "' within " +
                             std::to_string(timeout.count()) + " ms",
                         {r}, {}, "have all ranks made the same call?");
    }
  }
  return all;
}

int OutOfBand::blamed(const ctran::Error& error) const {
  const bool lost = error.kind() == ctran::ErrorKind::PeerLost && !error.ranks().empty();
  return lost ? error.ranks().front() : rank_;
}

std::future<bool> OutOfBand::announce(const ctran::Error& error) {
  return ask<bool>([error](OutOfBand& self) {
    self.writeError(error);
    return true;
  });
}

void OutOfBand::writeError(const ctran::Error& error) {
  if (own_->check({kErrorKey})) return;
  own_->set(kErrorKey, std::to_string(static_cast<int>(error.kind())) + " " +
                           std::to_string(blamed(error)) + " Rank " + std::to_string(rank_) + ": " +
                           error.what());
}

std::future<OutOfBand::News> OutOfBand::read(bool watchPeers) {
  return ask<News>([watchPeers](OutOfBand& self) {
    News news;
    // First what needs no store, which may have died with its process.
    if (watchPeers) news.dead = self.peers_.findDead(*self.own_);
    if (news.dead.empty()) news.error = self.readError();
    return news;
  });
}

void OutOfBand::await(const std::future<bool>& answer, milliseconds patience) {
  const HostWait wait;
  const Clock::time_point deadline = Clock::now() + patience;
  while (answer.wait_for(kPause) != std::future_status::ready && Clock::now() < deadline) {
    HostWait::checkInterrupts();
  }
}

void OutOfBand::meetPeers() {
  const auto met = ask<bool>([](OutOfBand& self) {
    self.peers_.meet(*self.own_);
    return true;
  });
  await(met, kPeersPatience);
}

void OutOfBand::leave() {
  const auto left = ask<bool>([](OutOfBand& self) {
    self.peers_.leave(*self.own_);
    return true;
  });
  await(left, kLeavingPatience);
}

std::optional<ctran::Error> OutOfBand::readError() {
  if (!own_->check({kErrorKey})) return std::nullopt;
  return parsed(textOf(own_->get(kErrorKey)));
}

std::future<OutOfBand::Missing> OutOfBand::findMissing(uint64_t sequence, milliseconds patience) {
  return ask<Missing>([sequence, patience](OutOfBand& self) {
    return Missing(self.awaitOthers(sequence, patience));
  });
}

std::vector<int> OutOfBand::awaitOthers(uint64_t sequence, milliseconds patience) {
  own_->set(waitingKey(rank_), std::to_string(sequence));
  const Clock::time_point deadline = Clock::now() + patience;
  std::vector<int> missing;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const std::string key = waitingKey(r);
    while (!own_->check({key}) && Clock::now() < deadline) std::this_thread::sleep_for(kPause);
    if (!own_->check({key}) || std::stoull(textOf(own_->get(key))) < sequence) {
      missing.push_back(r);
    }
  }
  return missing;
}

}  // namespace torch::comms::nccl
