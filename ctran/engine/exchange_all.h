#pragma once

#include <chrono>
#include <type_traits>
#include <vector>

#include "ctran/collective/preference.h"
#include "ctran/engine/communicator.h"

namespace ctran {

/// From this many hosts on, ranks exchange in log2(n) steps: the algorithm that is fastest for
/// little data would connect each rank to every host, only for this exchange.
inline constexpr int kManyHosts = 16;

/// Returns the value of each rank, by rank. Collective; all ranks pass the same T, which is plain
/// data. Between many hosts each rank sends log2(n) messages, to as many ranks.
template <class T>
std::vector<T> exchangeAll(Communicator& communicator, const T& own,
                           std::chrono::nanoseconds timeout = {}, WaitHooks* hooks = nullptr,
                           bool makesGroup = false) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(communicator.size());
  Collective exchange;
  exchange.kind = CollectiveKind::AllGather;
  exchange.type = DataType::Opaque1;
  exchange.count = sizeof own;
  exchange.input = reinterpret_cast<const std::byte*>(&own);
  exchange.output = reinterpret_cast<std::byte*>(all.data());
  exchange.makesGroup = makesGroup;
  if (communicator.map().hosts() >= kManyHosts) {
    exchange.hints = callHints({{"ctran::algorithm", "bruck"}}, true);
  }
  communicator.run(exchange, timeout, hooks);
  return all;
}

}  // namespace ctran
