#include "ctran/plan/mscclpp/scatter.h"

#include <map>
#include <set>
#include <vector>

namespace ctran::plan::mscclpp {
namespace {

/// Calls `visit(lane, step, place, writes)` for every place in the rank's input.
template <class Visit>
void forEachPlace(Plan& plan, int rank, Visit visit) {
  for (int r = 0; r < plan.ranks; ++r) {
    for (int l = 0; l < static_cast<int>(plan.programs[r].size()); ++l) {
      for (Step& step : plan.programs[r][l]) {
        for (auto* places : {&step.from, &step.to}) {
          for (Place& place : *places) {
            if (place.rank != rank || place.buffer != Buffer::Input) continue;
            visit(LaneId{r, l}, step, place, places == &step.to);
          }
        }
      }
    }
  }
}

}  // namespace

bool divideOwnBlock(Plan& plan, int rank) {
  std::map<int, std::set<LaneId>> users;  // of chunks that are written
  forEachPlace(plan, rank, [&](LaneId, const Step& step, const Place& place, bool writes) {
    for (int i = 0; i < step.count && writes; ++i) users[place.index + i];
  });
  std::set<int> written;
  std::vector<Place*> moved;
  bool divides = true;
  forEachPlace(plan, rank, [&](LaneId lane, const Step& step, Place& place, bool writes) {
    int old = 0;
    for (int i = place.index; i < place.index + step.count; ++i) {
      const auto found = users.find(i);
      if (found != users.end()) found->second.insert(lane);
      divides &= found == users.end() || found->second.size() == 1;
      if (writes) {
        divides &= i / plan.chunks == rank;
        written.insert(i);
      } else if (!written.contains(i)) {
        ++old;
      }
    }
    divides &= old == 0 || old == step.count;
    if (old == 0) moved.push_back(&place);
  });
  if (!divides) return false;
  for (Place* place : moved) *place = {rank, Buffer::Output, place->index % plan.chunks};
  return true;
}

void replaceInput(Plan& plan, int rank, int first) {
  forEachPlace(plan, rank, [&](LaneId, const Step&, Place& place, bool) {
    place = {rank, Buffer::Scratch, first + place.index};
  });
}

}  // namespace ctran::plan::mscclpp
