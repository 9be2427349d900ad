#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ctran/collective/blocks.h"
#include "ctran/collective/collective.h"
#include "ctran/collective/task.h"
#include "ctran/reduce/reduce.h"
#include "ctran/topology/host_map.h"
#include "ctran/transport/board.h"
#include "ctran/transport/transport.h"

namespace ctran {

class NetContext;

/// Larger scratch memory is not kept for the next collective.
inline constexpr size_t kKeptScratch = 32 << 20;

/// A message of a collective. To `co_await` it throws Error(Mismatch) if the peer is in another
/// collective than this rank. An empty message is not sent, and has always ended.
template <class End>
class NetMessage {
 public:
  NetMessage() = default;
  NetMessage(NetContext& context, std::unique_ptr<End> end)
      : context_(&context), end_(std::move(end)) {}
  Condition condition() const { return end_ ? end_->ended() : Condition{}; }
  void check() const;

 private:
  NetContext* context_ = nullptr;
  std::unique_ptr<End> end_;
};

using Arrival = NetMessage<Inbound>;
using Dispatch = NetMessage<Outbound>;

/// The current collective of a communicator on several hosts.
class HostsCall {
 public:
  /// `agreed` is a hash of what else all ranks have to have alike.
  HostsCall(Board& board, Transport& transport, uint64_t agreed)
      : board(board), transport(transport) {
    record_.signature = agreed;
  }

  Board& board;
  Transport& transport;

  /// Starts the next collective, and publishes that all before it have ended.
  void begin(const Collective& collective);
  /// Marks the record of the current collective as completed.
  void end() { board.control(board.rank()).collectives.complete(position_); }

  const OperationRecord& record() const { return record_; }
  uint64_t sequence() const { return record_.sequence; }
  uint64_t signature() const { return record_.signature; }
  [[noreturn]] void throwMismatch(const Transmission& message) const;

 private:
  OperationRecord record_;
  uint64_t position_ = 0;
};

/// Returns the rank that takes part for a host, see NetContext.
inline int delegateOf(const HostMap& map, int host, int root) {
  if (map.hostOf(root) == host) return root;
  const std::span<const int> ranks = map.ranks(host);
  return ranks[std::min<size_t>(map.indexOf(root), ranks.size() - 1)];
}

/// What the collectives over the network work with: messages among a group of ranks. A message is
/// named by a buffer number that both ends derive from the algorithm; a number is used once per
/// collective, peer and direction. Ranks are numbered by their place in the group.
class NetContext {
 public:
  /// Makes the group of all ranks.
  explicit NetContext(HostsCall& call);
  /// Makes the group of all ranks, for algorithms that have an order (`place`).
  NetContext(HostsCall& call, const HostMap& map);
  /// Makes a group of one rank of each host: `root` in its own host, in each other host the rank
  /// with the same place or, if there is none, the last one. Ranks have the numbers of their hosts.
  NetContext(HostsCall& call, const HostMap& map, int root);

  HostsCall& call;
  const int rank;
  const int size;
  FrameMemory frame;

  /// Prepares for a collective, or a step of one: an average is over `contributions`, and buffer
  /// numbers start at `firstBuffer`.
  void prepare(int contributions, uint32_t firstBuffer = 0);
  int contributions() const { return contributions_; }

  Arrival receive(int peer, uint32_t buffer, std::byte* data, size_t bytes);
  Dispatch send(int peer, uint32_t buffer, const std::byte* data, size_t bytes);

  /// Return the rank `step` after this one, or before it.
  int after(int step) const { return (rank + step) % size; }
  int before(int step) const { return (rank - step % size + size) % size; }

  /// The order of rings and trees, in which the ranks of a host stand next to each other (see
  /// HostMap::at). `place()` and `placeOf` return the place of this rank or another one; `at`
  /// returns the rank at a place from -size to 2 * size.
  int place() const { return placeOf(rank); }
  int placeOf(int rank) const { return order_ ? order_->placeOf(rank) : rank; }
  int at(int place) const {
    const int wrapped = (place + size) % size;
    return order_ ? order_->at(wrapped) : wrapped;
  }
  /// Returns the number that a rank of the group has in the communicator.
  int memberOf(int rank) const { return delegates_ ? delegateOf(*delegates_, rank, root_) : rank; }

  /// Returns memory for what arrives to be reduced. It is kept for later collectives while it is
  /// small.
  std::byte* scratch(size_t bytes);

 private:
  std::optional<HostMap> delegates_;  // none: the group is all ranks
  const int root_ = 0;
  std::optional<HostMap> order_;  // none: ranks are in the order of their numbers
  int contributions_;
  uint32_t firstBuffer_ = 0;
  std::vector<std::byte> scratch_;
};

/// The step of ranks that have nothing to do.
inline Task doNothing(NetContext&) { co_return; }

template <class End>
void NetMessage<End>::check() const {
  if (!end_) return;
  if (end_->isWrong || end_->other.operation.signature != context_->call.signature()) {
    if constexpr (std::is_same_v<End, Outbound>) {
      if (!end_->isWrong) return;  // eager ones tell nothing of the other end
    }
    context_->call.throwMismatch(*end_);
  }
}

}  // namespace ctran
