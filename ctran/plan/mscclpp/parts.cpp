#include "ctran/plan/mscclpp/parts.h"

#include <map>
#include <set>

namespace ctran::plan::mscclpp {
namespace {

using ScratchSlot = std::pair<int, int>;  // rank, chunk of scratch

/// The part that a step moves, as far as is known yet; or -1. What is in a user's buffer is what it
/// has to be, what is in scratch only what it was when it was written.
int partOf(const Plan& plan, const Step& step, const std::map<ScratchSlot, int>& parts) {
  int part = -1;
  for (const auto* list : {&step.from, &step.to}) {
    for (const Place& place : *list) {
      if (place.buffer != Buffer::Scratch) return place.index % plan.chunks;
      const auto known = parts.find({place.rank, place.index});
      if (part < 0 && known != parts.end()) part = known->second;
    }
  }
  return part;
}

}  // namespace

void settleParts(Plan& plan) {
  std::map<ScratchSlot, int> parts;
  std::set<const Step*> settled;
  const auto settle = [&](Step& step) {
    if (!step.moves() || settled.contains(&step)) return false;
    const int part = partOf(plan, step, parts);
    if (part < 0) return false;
    step.part = part;
    settled.insert(&step);
    for (const Place& place : step.to) {
      for (int i = 0; i < step.count && place.buffer == Buffer::Scratch; ++i) {
        parts[{place.rank, place.index + i}] = (part + i) % plan.chunks;
      }
    }
    return true;
  };
  bool more = true;
  while (more) {
    more = false;
    for (auto& lanes : plan.programs) {
      for (Lane& lane : lanes) {
        for (Step& step : lane) more |= settle(step);
      }
    }
  }
}

}  // namespace ctran::plan::mscclpp
