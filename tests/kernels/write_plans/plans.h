#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "ctran/plan/library.h"
#include "ctran/plan/synthesis/synthesize.h"
#include "ctran/plan/trim.h"

namespace ctran::plan::testing {

/// The same plan with packets in scratch, whose signals travel in them.
inline Plan inPackets(Plan plan) {
  for (auto& lanes : plan.programs) {
    for (Lane& lane : lanes) {
      for (Step& step : lane) {
        const auto isScratch = [](const Place& place) { return place.buffer == Buffer::Scratch; };
        step.packet = std::any_of(step.from.begin(), step.from.end(), isScratch) ||
                      std::any_of(step.to.begin(), step.to.end(), isScratch);
      }
    }
  }
  plan.name += ".packets";
  return plan;
}

/// All-reduce of two ranks in three lanes: one sends, one reduces and sends the result back, one
/// takes what comes back. Lanes of a rank meet in the end.
inline Plan allReduceInLanes() {
  Plan plan;
  plan.name = "all_reduce.lanes.packets";
  plan.kind = CollectiveKind::AllReduce;
  plan.ranks = 2;
  plan.chunks = 2;
  plan.scratch = 2;
  plan.inPlace = true;
  plan.programs.assign(2, std::vector<Lane>(3));
  const auto channel = [&](LaneId from, LaneId to) {
    plan.channels.push_back({from, to, 0});
    return static_cast<int>(plan.channels.size()) - 1;
  };
  for (int me = 0; me < 2; ++me) {
    const int peer = 1 - me;
    const int data = channel({me, 0}, {peer, 1}), result = channel({me, 1}, {peer, 2});
    const auto packets = [](std::vector<Place> to, std::vector<Place> from, int part) {
      Step step;
      step.to = std::move(to);
      step.from = std::move(from);
      step.part = part;
      step.packet = true;
      return step;
    };
    Step send = packets({{peer, Buffer::Scratch, peer}}, {{me, Buffer::Output, peer}}, peer);
    send.signals = {data};
    plan.programs[me][0].push_back(send);
    Step reduce = packets({{me, Buffer::Output, me}, {peer, Buffer::Scratch, me}},
                          {{me, Buffer::Output, me}, {me, Buffer::Scratch, me}}, me);
    reduce.signals = {result};
    plan.programs[me][1].push_back(reduce);
    plan.programs[me][2].push_back(
        packets({{me, Buffer::Output, peer}}, {{me, Buffer::Scratch, peer}}, peer));
  }
  for (int me = 0; me < 2; ++me) {
    plan.programs[me][1][0].waits = {{2 * (1 - me), 1}};
    plan.programs[me][2][0].waits = {{2 * (1 - me) + 1, 1}};
    std::vector<Step> tell(3), hear(3);
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        if (from == to) continue;
        const int c = channel({me, from}, {me, to});
        tell[from].signals.push_back(c);
        hear[to].waits.push_back({c, 1});
      }
    }
    for (int lane = 0; lane < 3; ++lane) {
      plan.programs[me][lane].push_back(tell[lane]);
      plan.programs[me][lane].push_back(hear[lane]);
    }
  }
  return plan;
}

/// All-reduce in place that reads from all ranks' buffers, and writes to them.
inline Plan allReduceByReach(int ranks) {
  Plan plan;
  plan.name = "all_reduce.reach";
  plan.kind = CollectiveKind::AllReduce;
  plan.ranks = ranks;
  plan.chunks = ranks;
  plan.inPlace = true;
  plan.programs.assign(ranks, std::vector<Lane>(1));
  for (const bool isLast : {false, true}) {
    std::vector<Step> tell(ranks), hear(ranks);
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        if (from == to) continue;
        const int channel = static_cast<int>(plan.channels.size());
        plan.channels.push_back({{from, 0}, {to, 0}, 0});
        tell[from].signals.push_back(channel);
        hear[to].waits.push_back({channel, 1});
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      Lane& lane = plan.programs[rank][0];
      lane.push_back(tell[rank]);
      lane.push_back(hear[rank]);
      if (isLast) continue;
      Step move;
      move.part = rank;
      move.store = true;
      for (int r = 0; r < ranks; ++r) move.from.push_back({r, Buffer::Output, rank});
      move.to = move.from;
      lane.push_back(move);
    }
  }
  return plan;
}

/// Every plan of the library, as GPUs run it, over 4 ranks on two hosts; some with several lanes
/// and chunks; and one that was made for a topology.
inline std::vector<Plan> plansForKernels() {
  std::vector<Plan> plans;
  for (const BuiltIn& builtIn : library()) {
    plans.push_back(withoutIdleCredits(makePlan(builtIn.name, {4, 0, 1, 1, 2})));
  }
  plans.push_back(makePlan("all_reduce.ring", {3, 0, 2, 2}));
  plans.push_back(makePlan("all_reduce.halving_doubling", {3}));
  plans.push_back(makePlan("broadcast.chain", {3, 1, 2, 2}));
  plans.push_back(synthesize(makeTopology("pcie:4"), CollectiveKind::AllReduce, 4).plan);
  for (const char* name : {"all_reduce.two_shot", "all_reduce.one_shot", "all_gather.direct"}) {
    plans.push_back(inPackets(withoutIdleCredits(makePlan(name, {3, 0, 1, 1, 2}))));
  }
  plans.push_back(allReduceInLanes());
  return plans;
}

/// Plans in which ranks reach buffers of each other's callers.
inline std::vector<Plan> plansThatReach() { return {allReduceByReach(2), allReduceByReach(3)}; }

}  // namespace ctran::plan::testing
