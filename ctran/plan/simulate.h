#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctran/plan/plan.h"
#include "ctran/plan/topology.h"

namespace ctran::plan {

/// A kind of way between two ranks, in the manner of LogGP. Seconds, and bytes per second.
struct LinkCost {
  double latency = 1e-6;   ///< from when the last byte has left until it is there
  double overhead = 2e-7;  ///< of the sender, per message
  double bandwidth = 10e9;
};

/// CPUs of a host that share its memory. There is no link between them that anybody could wait for:
/// whoever moves data takes as long as it takes, and scratch is in the caches of others.
struct SharedMemory {
  double readBandwidth = 10e9;   ///< of scratch
  double writeBandwidth = 10e9;  ///< of scratch
  double signalOverhead = 5e-8;  ///< of each signal, and each wait
  double arrival = 0;            ///< until all ranks have come, for plans that put into others
};

/// What a plan runs on: hosts of equally many ranks. Links are shared: each rank sends and receives
/// one message at a time on links of its host, and so does each network card, which carries what
/// the ranks that use it send to other hosts.
struct Machine {
  int ranksPerHost = 1 << 20;  ///< all on one, unless said otherwise
  LinkCost local;
  LinkCost network{5e-6, 5e-7, 12.5e9};
  int cardsPerHost = 1;  ///< rank l of a host uses card l % cardsPerHost
  int ranksPerCard(int ranks) const { return (ranks + cardsPerHost - 1) / cardsPerHost; }
  double copyBandwidth = 10e9;    ///< local copies
  double reduceBandwidth = 10e9;  ///< of the bytes that are read
  double stepOverhead = 1e-7;
  double start = 0;  ///< until the first step of a call, on every rank
  /// Where all buffers of a rank's caller together are larger than `cacheBytes`, those of their
  /// bytes that caches cannot hold cost a byte of `memoryBandwidth` besides, whenever they are read
  /// or written. 0: caches hold everything.
  double cacheBytes = 0;
  double memoryBandwidth = 10e9;
  bool lanesInTurns = false;  ///< the lanes of a rank share one thread, as on CPU
  /// Ranks of a host are CPUs: takes the place of `local`, but for its latency, of signals.
  std::optional<SharedMemory> sharedMemory;

  /// Links one by one, instead of `local` (but for its overhead) and `network`. Data takes
  /// `routes`, of several the one on which it is there first, or the shortest way.
  std::optional<Topology> topology;
  Routes routes;

  // What is wrong with it.
  struct SlowLink {
    int from, to;
    double factor;  ///< of the time
  };
  std::vector<SlowLink> slowLinks;
  std::vector<std::pair<int, double>> slowRanks;  ///< rank, factor of its own time
  std::vector<std::pair<int, double>> deadRanks;  ///< rank, when it stops
};

/// Members as above, in snake_case; those left out have their default. Throws
/// Error(InvalidArgument).
Machine machineFromJson(const Json& json);
/// What a machine costs; without faults and topology.
Json toJson(const Machine& machine);

/// When something happens that does not.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// A step that took place: in seconds from the start.
struct Activity {
  LaneId lane;
  int step, execution;
  double start, end;
};
/// Data on its way to another rank.
struct Transfer {
  int from, to;
  size_t bytes;
  double start, end;
};
/// How much of the time a link was in use.
struct LinkUse {
  std::string link;
  double busy;  ///< seconds
};
struct Timeline {
  double seconds = 0;        ///< when the last rank has ended
  std::vector<double> ends;  ///< per rank; infinite if it never does
  std::vector<Activity> activities;
  std::vector<Transfer> transfers;
  std::vector<LinkUse> links;
  /// Of lanes that wait for ever: "rank 1, lane 0, step 3 waits for rank 0".
  std::vector<std::string> stuck;
};

/// Executes the plan in virtual time: a block of `bytes` bytes, cut into `units` of equal size.
Timeline simulate(const Plan& plan, const Machine& machine, size_t bytes, int units = 1);

Json toJson(const Timeline& timeline);

}  // namespace ctran::plan
