#include "torchcomms/csrc/backends/rendezvous.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <random>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/base/rank_list.h"
#include "torchcomms/csrc/backends/ctran/store.hpp"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

const std::string kCome = "come";
constexpr milliseconds kLastPause{50};

std::string freshName() {
  std::random_device device;
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x%08x%08x", device(), device(), device(),
                device());
  return text.data();
}

milliseconds left(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(1));
}

std::string arrivalKey(const std::string& prefix, int rank) {
  return prefix + "/" + std::to_string(rank);
}

/// The part of a store that a c10d backend gets. A TCPStore that waits holds its connection, which
/// threads that make other communicators need meanwhile: two ranks could wait for each other so.
/// This one asks again and again instead.
class PollingStore final : public c10d::PrefixStore {
 public:
  using c10d::PrefixStore::PrefixStore;

  std::vector<uint8_t> get(const std::string& key) override {
    wait({key}, getTimeout());
    return PrefixStore::get(key);
  }
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    wait(keys, getTimeout());
    return PrefixStore::multiGet(keys);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    const Clock::time_point start = Clock::now();
    for (milliseconds pause{1}; !check(keys); pause = std::min(2 * pause, kLastPause)) {
      const auto passed = std::chrono::floor<milliseconds>(Clock::now() - start);
      if (passed >= timeout) return PrefixStore::wait(keys, milliseconds(1));  // throws
      std::this_thread::sleep_for(pause);
    }
  }
};

/// Ranks whose arrival has not been noted by the deadline. Forgets the arrivals.
std::vector<int> awaitArrivals(C10dStore& store, const std::string& prefix, int size,
                               Clock::time_point deadline) {
  std::vector<int> missing;
  for (int r = 1; r < size; ++r) {
    const std::string key = arrivalKey(prefix, r);
    try {
      store.get(key, left(deadline));
      store.remove(key);
    } catch (const ctran::Error& e) {
      if (e.kind() != ctran::ErrorKind::Timeout) throw;
      missing.push_back(r);
    }
  }
  return missing;
}

[[noreturn]] void someMissing(const std::string& key, const std::vector<int>& ranks,
                              milliseconds timeout) {
  throw ctran::Error(ctran::ErrorKind::Timeout,
                     "Not all ranks have come to '" + key + "' within " +
                         std::to_string(timeout.count()) + " ms; missing: " + ctran::listed(ranks),
                     ranks, {}, "have all ranks been started, with the same size and name?");
}

/// "1 3 5", and back: what another rank has written may be anything.
std::string written(const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += std::to_string(r) + " ";
  return text;
}

std::vector<int> ranksIn(const std::string& text, int size) {
  std::vector<int> ranks;
  std::istringstream numbers(text);
  for (int r = 0; numbers >> r && std::ssize(ranks) < size;) {
    if (r >= 0 && r < size) ranks.push_back(r);
  }
  return ranks;
}

/// The part of all other ranks: returns the part of the store that rank 0 has picked.
std::string prefixOfRank0(C10dStore& store, const std::string& key, milliseconds timeout) {
  try {
    return store.get(key, timeout);
  } catch (const ctran::Error& e) {
    if (e.kind() != ctran::ErrorKind::Timeout) throw;
    someMissing(key, {0}, timeout);
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> meet(const c10::intrusive_ptr<c10d::Store>& store,
                                     const std::string& key, int rank, int size,
                                     milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  C10dStore keys(store);
  std::string prefix;
  if (rank == 0) {
    prefix = key + "/" + freshName();
    keys.set(key, prefix);
    std::vector<int> missing;
    try {
      missing = awaitArrivals(keys, prefix, size, deadline);
    } catch (...) {
      keys.remove(key);
      throw;
    }
    // All ranks that came have read it, and none leaves before the word below; so the next
    // rendezvous at this key cannot be mistaken for this one.
    keys.remove(key);
    keys.set(prefix + "/all", missing.empty() ? kCome : written(missing));
    if (!missing.empty()) someMissing(key, missing, timeout);
  } else {
    prefix = prefixOfRank0(keys, key, timeout);
    keys.set(arrivalKey(prefix, rank), kCome);
    const std::string word = keys.get(prefix + "/all", left(deadline) + milliseconds(1000));
    if (word != kCome) someMissing(key, ranksIn(word, size), timeout);
  }
  return c10::make_intrusive<PollingStore>(prefix, store);
}

}  // namespace torch::comms
