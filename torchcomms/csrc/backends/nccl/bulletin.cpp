#include "torchcomms/csrc/backends/nccl/bulletin.hpp"

#include <charconv>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace torch::comms::nccl {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kErrorKey = "broken";
constexpr milliseconds kPause{20};

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

int Bulletin::blamed(const ctran::Error& error) const {
  const bool lost = error.kind() == ctran::ErrorKind::PeerLost && !error.ranks().empty();
  return lost ? error.ranks().front() : rank_;
}

c10d::Store& Bulletin::own() {
  if (own_) return *own_;
  const auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store_);
  const auto base = prefixed ? prefixed->getUnderlyingNonPrefixStore() : store_;
  own_ = c10::dynamic_intrusive_pointer_cast<c10d::TCPStore>(base) ? cloned(store_) : store_;
  return *own_;
}

std::vector<int> Bulletin::findDead() noexcept {
  try {
    return peers_.findDead(own());
  } catch (const std::exception&) {
    return {};
  }
}

void Bulletin::announceError(const ctran::Error& error) noexcept {
  try {
    c10d::Store& store = own();
    if (store.check({kErrorKey})) return;
    store.set(kErrorKey, std::to_string(static_cast<int>(error.kind())) + " " +
                             std::to_string(blamed(error)) + " Rank " + std::to_string(rank_) +
                             ": " + error.what());
  } catch (const std::exception&) {
  }
}

std::optional<ctran::Error> Bulletin::readError() noexcept {
  try {
    c10d::Store& store = own();
    if (!store.check({kErrorKey})) return std::nullopt;
    return parsed(textOf(store.get(kErrorKey)));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::vector<int> Bulletin::findMissing(uint64_t sequence, milliseconds patience) noexcept {
  std::vector<int> missing;
  try {
    c10d::Store& store = own();
    store.set(waitingKey(rank_), std::to_string(sequence));
    const Clock::time_point deadline = Clock::now() + patience;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const std::string key = waitingKey(r);
      while (!store.check({key}) && Clock::now() < deadline) std::this_thread::sleep_for(kPause);
      if (!store.check({key}) || std::stoull(textOf(store.get(key))) < sequence) {
        missing.push_back(r);
      }
    }
  } catch (const std::exception&) {
    missing.clear();  // nothing is known
  }
  return missing;
}

}  // namespace torch::comms::nccl
