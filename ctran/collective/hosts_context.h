#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "ctran/collective/algorithm.h"
#include "ctran/collective/all_to_all/rows.h"
#include "ctran/collective/net_context.h"
#include "ctran/collective/shm_context.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// What the collectives between hosts work with: all ranks over the network and, where ranks share
/// a host, the ranks of this host over shared memory, and groups of one rank per host over the
/// network.
///
/// A step runs on a context of its own and is awaited:
///
///     const Collective step = ...;           // in the numbers of the ranks of that context
///     Task task = hosts.local(step);
///     co_await task;
///
/// A context has room for one step at a time: its task has to be destroyed before the
/// next one is made.
class HostsContext {
 public:
  /// `arena` is that of the ranks of this host; null if no ranks share a host.
  HostsContext(HostsCall& call, const HostMap& map, Arena* arena);

  HostsCall& call;
  const HostMap& map;
  NetContext all;
  FrameMemory frame;

  bool isShared() const { return shm_ != nullptr; }
  /// What the ranks of this host share; null if no ranks share a host.
  ShmContext* shm() { return shm_.get(); }

  /// Starts a step among the ranks of this host.
  Task local(const Collective& step);
  /// Prepares an exchange of rows, which is one step. Returns what it moves data through.
  RowPaths& beginRows();

  /// Returns whether this rank is on a rail, see HostMap.
  bool onRail() const { return map.index() < map.rails(); }
  /// The ranks that have this rank's place in their hosts, numbered as the hosts are.
  NetContext& rail() { return *rail_; }
  /// One rank of each host: `root` in its own host, in each other host the rank with the same place
  /// or, if there is none, the last one.
  NetContext& around(int root);
  /// Returns the rank of `around(root)` in that host.
  int delegate(int host, int root) const;

  /// Starts a step over the network, by the algorithm that is cheapest among the ranks of `net`. If
  /// the data moves in several such steps, this is step `number`.
  Task between(NetContext& net, const Collective& step, uint32_t number = 0);
  /// Starts such a step by the algorithm of that name, among the first ranks of all hosts; these
  /// are all ranks if none share a host.
  Task betweenFirst(std::string_view name, const Collective& step, uint32_t number);

  /// Starts a collective of each rail by itself.
  Task startOnRails(const Collective& c);
  /// Starts a collective of all ranks, by an algorithm between hosts.
  Task start(const Algorithm& algorithm, const Collective& c);

  /// Returns memory for partial results. It is kept for later collectives while it is small.
  std::byte* scratch(size_t bytes);

 private:
  std::unique_ptr<ShmContext> shm_;
  std::unique_ptr<NetContext> rail_;
  std::map<int, std::unique_ptr<NetContext>> around_;  // by root
  std::vector<std::byte> scratch_;
  std::unique_ptr<RowPaths> rows_;
};

/// Returns `c` as a step that divides nothing yet: a sum instead of an average.
inline Collective partialOf(const Collective& c) {
  Collective step = c;
  if (step.op.kind == ReduceKind::Avg) step.op.kind = ReduceKind::Sum;
  return step;
}

}  // namespace ctran
