#include "torchcomms/csrc/backends/ctran/store.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <comms/torchcomms/TorchWork.hpp>
#include <thread>
#include <vector>

#include "ctran/base/error.h"

namespace torch::comms {

namespace {

/// Stores offer no wait that a signal ends, and some complain on stderr when a wait runs out, so we
/// ask again and again.
constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLastPause{50};

/// Runs `call`; what the store throws becomes an Error of the engine.
template <typename Call>
auto translated(const char* what, const std::string& key, Call call) {
  const auto error = [&](const char* why) {
    return ctran::Error(ctran::ErrorKind::System,
                        std::string("The store could not ") + what + " '" + key + "': " + why, {},
                        {},
                        "the process that hosts the store, often rank 0, may have ended: see what "
                        "it says");
  };
  try {
    return call();
  } catch (const c10::Error& e) {
    throw error(e.what_without_backtrace());
  } catch (const std::exception& e) {
    throw error(e.what());
  }
}

}  // namespace

void C10dStore::set(const std::string& key, const std::string& value) {
  const HostWait wait;
  translated("set", key, [&] { store_->set(key, value); });
}

std::string C10dStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const HostWait wait;
  const Clock::time_point deadline = Clock::now() + timeout;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLastPause)) {
    if (translated("find", key, [&] { return store_->check({key}); })) break;
    if (Clock::now() >= deadline) {
      throw ctran::Error(ctran::ErrorKind::Timeout,
                         "Nobody has set '" + key + "' in the store after " +
                             std::to_string(timeout.count()) + " ms",
                         {}, {}, "have all ranks been started, with the same size and name?");
    }
    HostWait::checkInterrupts();
    std::this_thread::sleep_for(pause);
  }
  const std::vector<uint8_t> value = translated("get", key, [&] { return store_->get(key); });
  return {value.begin(), value.end()};
}

void C10dStore::remove(const std::string& key) {
  const HostWait wait;
  translated("remove", key, [&] { store_->deleteKey(key); });
}

}  // namespace torch::comms
