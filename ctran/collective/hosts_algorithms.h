#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctran/collective/hosts_context.h"
#include "ctran/collective/net_algorithms.h"

namespace ctran {

/// The algorithms of several hosts of which some have several ranks: shared memory inside, the
/// network between. Each is described where it is defined, in the folder of its collective.
using HostsAlgorithm = Task (*)(HostsContext&, const Collective&);

Task barrierGroup(HostsContext&, const Collective&);
Task broadcastGroup(HostsContext&, const Collective&);
Task allReduceGroup(HostsContext&, const Collective&);
Task reduceGroup(HostsContext&, const Collective&);
Task allGatherGroup(HostsContext&, const Collective&);
Task reduceScatterGroup(HostsContext&, const Collective&);
Task scatterGroup(HostsContext&, const Collective&);
Task gatherGroup(HostsContext&, const Collective&);
Task allToAllGroup(HostsContext&, const Collective&);

/// A step of those who have nothing to do in it.
inline Task doNothing(NetContext&) { co_return; }

/// An algorithm between hosts as a user or a selector knows it: `group`, which goes through shared
/// memory inside the hosts, or one over the network among all ranks.
struct HostsChoice {
  std::string_view name;
  HostsAlgorithm group = nullptr;  ///< that, or
  const NetChoice* net = nullptr;  ///< that
  bool sumsPartially = false;      ///< passes on partial sums
  std::string whyNot;              ///< empty if it can serve
};

/// Those of a collective, `group` first if some ranks share a host; none if it is no collective.
/// The same on all ranks.
std::vector<HostsChoice> hostsChoices(CollectiveKind kind, const HostMap& map);

/// The cost model: microseconds, where each rank contributes that many bytes. `partialSums`:
/// whether the steps of `group` may pass them on.
double microsOf(const HostsChoice& choice, CollectiveKind kind, size_t bytes, const HostMap& map,
                bool partialSums);

/// Starts a collective by that algorithm.
Task startBetweenHosts(HostsContext& hosts, const Collective& c, const HostsChoice& choice);

/// Whether it reduces.
bool isReduction(CollectiveKind kind);

/// What happens when a communicator is made, as one collective: all wait for all, and hear a word
/// of rank 0.
struct Meeting {
  static constexpr size_t kLongest = 1 << 20;

  HostsContext& hosts;
  std::string word;  ///< of rank 0 at first
  FrameMemory frame;
};
Task meet(Meeting& meeting, const Collective& barrier);

}  // namespace ctran
