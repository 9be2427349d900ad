#include "ctran/plan/estimate.h"

#include <algorithm>
#include <bit>

#include "ctran/base/error.h"

namespace ctran::plan {
namespace {

/// The costs of steps, with the messages of `sharing` ranks on one network card at a time.
struct Costs {
  const Machine& machine;

  const LinkCost& link(bool network) const { return network ? machine.network : machine.local; }

  /// From the beginning of a put until the data is there.
  double put(bool network, double bytes, double sharing = 1) const {
    return send(network, bytes, sharing) + link(network).latency;
  }
  /// Until the sender can go on.
  double send(bool network, double bytes, double sharing = 1) const {
    const LinkCost& cost = link(network);
    return machine.stepOverhead + cost.overhead + bytes * sharing / cost.bandwidth;
  }
  double reduce(int sources, double bytes) const {
    return sources * bytes / machine.reduceBandwidth;
  }
  double copy(double bytes) const { return bytes / machine.copyBandwidth; }
  double step() const { return machine.stepOverhead; }
};

/// n - 1 steps each way; in each, everybody sends a piece at once, so that the slowest link tells.
double ring(const Costs& costs, int n, double piece, bool network, double sharing) {
  if (n < 2) return 0;
  const double put = costs.put(network, piece, sharing);
  const double scatter =
      put + (n - 2) * (put + costs.reduce(2, piece)) + costs.step() + costs.reduce(2, piece);
  const double gather =
      put + (n - 2) * (put + costs.copy(piece)) + costs.step() + costs.copy(piece);
  return scatter + gather;
}

double halvingDoubling(const Costs& costs, int n, double bytes) {
  const Machine& machine = costs.machine;
  double seconds = 0;
  for (int half = n / 2; half >= 1; half /= 2) {
    const double piece = bytes * half / n;
    // Far partners are on other hosts, all ranks of a host at once.
    const bool network = half >= machine.ranksPerHost;
    const int onHost = std::min(n, machine.ranksPerHost);
    const int sharing = network ? machine.ranksPerCard(onHost) : 1;
    seconds += 2 * costs.put(network, piece, sharing);
    seconds += 2 * costs.step() + costs.reduce(2, piece) + costs.copy(piece);
  }
  return seconds;
}

/// Everybody to everybody: a rank's sends one after another, then what came.
double directReduceScatterSeconds(const Costs& costs, int n, double piece) {
  if (n < 2) return costs.step() + costs.copy(piece);
  return (n - 1) * costs.send(false, piece) + costs.link(false).latency + costs.step() +
         costs.reduce(n, piece);
}
double directAllGatherSeconds(const Costs& costs, int n, double piece) {
  if (n < 2) return 0;
  // What came first is copied while the last is on its way.
  const double take = costs.step() + costs.copy(piece);
  return (n - 1) * costs.send(false, piece) + std::max(costs.link(false).latency, (n - 2) * take) +
         take;
}

/// What `synthesize` makes for ranks at a switch in each host, whose cards lead to a network: the
/// bound of cutBound(), of which two sets of nodes are the tightest there, all but one rank and all
/// but one host; and a start-up of a message per level of the trees, inside the host, to the other
/// hosts, and inside those, with a message from each other rank, which a rank handles one by one.
double synthesized(const Costs& costs, int ranks, int g, double bytes) {
  const Machine& machine = costs.machine;
  const bool network = ranks > g;
  const double others = ranks - 1, piece = bytes / ranks;
  double slowest = others / machine.local.bandwidth;
  if (network) {
    slowest = std::max(slowest, (ranks - g) / (machine.cardsPerHost * machine.network.bandwidth));
  }
  double start = costs.put(network, 0) + costs.step();
  if (network && g > 1) start += 2 * costs.put(false, 0);
  start += others * (costs.step() + costs.link(network).overhead);
  return 2 * (start + piece * slowest);
}

}  // namespace

double estimate(std::string_view name, int ranks, const Machine& machine, double bytes) {
  const auto reject = [&](const std::string& why) {
    return Error(ErrorKind::InvalidArgument, "estimate of '" + std::string(name) + "': " + why);
  };
  if (ranks < 2 || bytes < 0) throw reject("it takes two ranks, and bytes that are not negative");
  const Costs costs{machine};
  const int g = std::min(ranks, machine.ranksPerHost), hosts = ranks / g;
  if (ranks % g != 0) throw reject("hosts must have equally many ranks");
  if (name == "all_reduce.ring") {
    return ring(costs, ranks, bytes / ranks, hosts > 1, 1);
  }
  if (name == "all_reduce.halving_doubling") {
    if (!std::has_single_bit(static_cast<unsigned>(ranks)) ||
        !std::has_single_bit(static_cast<unsigned>(g))) {
      throw reject("only for powers of two");
    }
    return halvingDoubling(costs, ranks, bytes);
  }
  if (name == "all_reduce.two_shot" && hosts == 1) {
    return directReduceScatterSeconds(costs, ranks, bytes / ranks) +
           directAllGatherSeconds(costs, ranks, bytes / ranks);
  }
  if (name == "all_reduce.hierarchical") {
    const int sharing = machine.ranksPerCard(g);
    const double piece = bytes / g;
    return directReduceScatterSeconds(costs, g, piece) +
           ring(costs, hosts, piece / hosts, true, sharing) +
           directAllGatherSeconds(costs, g, piece);
  }
  if (name == "all_reduce.synthesized") return synthesized(costs, ranks, g, bytes);
  throw reject("there is no formula for it on " + std::to_string(hosts) + " hosts");
}

}  // namespace ctran::plan
