#include "ctran/plan/plan.h"

#include <algorithm>
#include <map>

#include "ctran/base/error.h"

namespace ctran::plan {

std::string_view nameOf(Buffer buffer) {
  constexpr std::string_view kNames[] = {"input", "output", "scratch"};
  return kNames[static_cast<size_t>(buffer)];
}

std::string_view nameOf(const Step& step, int rank) {
  if (!step.moves()) {
    if (step.signals.empty()) return "wait";
    return step.waits.empty() ? "signal" : "wait_signal";
  }
  const auto remote = [rank](const Place& place) { return place.rank != rank; };
  const bool puts = std::any_of(step.to.begin(), step.to.end(), remote);
  const bool gets = std::any_of(step.from.begin(), step.from.end(), remote);
  if (step.from.size() > 1) {
    if (gets) return puts ? "get_reduce_put" : "get_reduce";
    return puts ? "reduce_put" : "reduce";
  }
  if (gets) return puts ? "get_put" : "get";
  return puts ? "put" : "copy";
}

int Plan::blocks(Buffer buffer) const {
  if (open) return buffer == Buffer::Input ? open->inputs : open->outputs;
  const bool many = kind == CollectiveKind::AllToAll ||
                    (kind == CollectiveKind::AllGather && buffer == Buffer::Output) ||
                    (kind == CollectiveKind::ReduceScatter && buffer == Buffer::Input);
  return many ? ranks : 1;
}

size_t Plan::stepCount() const {
  size_t count = 0;
  for (const auto& lanes : programs) {
    for (const Lane& lane : lanes) count += lane.size();
  }
  return count;
}

Plan withRoot(const Plan& plan, int root) {
  const auto moved = [&](int rank) { return (rank + root - plan.root + plan.ranks) % plan.ranks; };
  Plan result = plan;
  result.root = root;
  for (Channel& channel : result.channels) {
    channel.from.rank = moved(channel.from.rank);
    channel.to.rank = moved(channel.to.rank);
  }
  for (int rank = 0; rank < plan.ranks; ++rank) {
    auto& lanes = result.programs[moved(rank)] = plan.programs[rank];
    for (Lane& lane : lanes) {
      for (Step& step : lane) {
        for (Place& place : step.to) place.rank = moved(place.rank);
        for (Place& place : step.from) place.rank = moved(place.rank);
      }
    }
  }
  return result;
}

uint64_t Plan::hash() const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : toJson(*this).print()) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

Needs needsOf(const Plan& plan) {
  Needs needs;
  needs.scratch = plan.scratch * plan.depth;
  for (int r = 0; r < plan.ranks; ++r) {
    needs.lanes = std::max(needs.lanes, static_cast<int>(plan.programs[r].size()));
    for (const Lane& lane : plan.programs[r]) {
      for (const Step& step : lane) {
        needs.packets |= step.packet;
        needs.sharedMemory |= step.store;
        for (const Place& place : step.from) needs.remoteRead |= place.rank != r;
        for (const Place& place : step.to) {
          needs.remoteOutput |= place.rank != r && place.buffer == Buffer::Output;
        }
      }
    }
  }
  std::map<int, int> starting;
  for (const Channel& channel : plan.channels) {
    needs.channels = std::max(needs.channels, ++starting[channel.from.rank]);
  }
  return needs;
}

bool isPlannable(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllReduce:
    case CollectiveKind::AllGather:
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::AllToAll:
    case CollectiveKind::Broadcast:
      return true;
    default:
      return false;
  }
}

}  // namespace ctran::plan
