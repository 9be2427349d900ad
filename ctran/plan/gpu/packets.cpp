#include "ctran/plan/gpu/packets.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace ctran::plan {
namespace {

template <class Visit>
void forEachStep(const Plan& plan, const Visit& visit) {
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (int lane = 0; lane < static_cast<int>(plan.programs[rank].size()); ++lane) {
      const Lane& steps = plan.programs[rank][lane];
      for (int s = 0; s < static_cast<int>(steps.size()); ++s)
        visit(LaneId{rank, lane}, s, steps[s]);
    }
  }
}

}  // namespace

Packets::Packets(const Plan& plan) : plan_(plan), carried_(plan.channels.size(), false) {
  any_ = findWriters();
  if (!any_) return;
  findCarried();
  needFences_ = lanesShareData();
}

std::vector<int> Packets::chunksOf(int rank) const {
  std::vector<int> chunks;
  for (const auto& [slot, writer] : writers_) {
    if (any_ && slot.first == rank) chunks.push_back(slot.second);
  }
  return chunks;
}

/// False if there are no packets, or something else goes from rank to rank as well.
bool Packets::findWriters() {
  bool right = true;
  forEachStep(plan_, [&](LaneId lane, int s, const Step& step) {
    for (const Place& place : step.from) right &= place.rank == lane.rank;
    for (const Place& place : step.to) {
      right &= place.rank == lane.rank || isPacket(step, place);
      for (int i = 0; i < step.count && isPacket(step, place); ++i) {
        right &=
            writers_.try_emplace({place.rank, place.index + i}, Writer{lane.rank, lane.lane, s})
                .second;
      }
    }
  });
  return right && !writers_.empty();
}

/// A channel of whose signals each is sent by a step that writes packets, and awaited by one that
/// reads some of those.
void Packets::findCarried() {
  std::vector<std::vector<Writer>> signals(plan_.channels.size());
  std::vector<std::vector<bool>> awaited(plan_.channels.size());
  forEachStep(plan_, [&](LaneId lane, int s, const Step& step) {
    for (const int channel : step.signals) signals[channel].push_back({lane.rank, lane.lane, s});
  });
  forEachStep(plan_, [&](LaneId lane, int, const Step& step) {
    for (const Wait& wait : step.waits) {
      for (int i = 0; i < wait.count; ++i) {
        const size_t number = awaited[wait.channel].size();
        awaited[wait.channel].push_back(step.packet && number < signals[wait.channel].size() &&
                                        reads(lane, step, signals[wait.channel][number]));
      }
    }
  });
  for (size_t c = 0; c < plan_.channels.size(); ++c) {
    carried_[c] = plan_.channels[c].credits == 0 && !signals[c].empty() &&
                  std::all_of(awaited[c].begin(), awaited[c].end(), [](bool is) { return is; });
  }
}

bool Packets::reads(const LaneId& lane, const Step& step, const Writer& writer) const {
  for (const Place& place : step.from) {
    for (int i = 0; i < step.count && isPacket(step, place); ++i) {
      const auto found = writers_.find({lane.rank, place.index + i});
      if (found != writers_.end() && found->second == writer) return true;
    }
  }
  return false;
}

/// Whether a lane uses what another lane of its rank has written in the same execution. (That it
/// writes what another has read needs no fence: who has read has had the data.)
bool Packets::lanesShareData() const {
  std::vector<const Step*> steps;
  std::vector<LaneId> lanes;
  std::vector<std::vector<int>> next;
  forEachStep(plan_, [&](LaneId lane, int s, const Step& step) {
    steps.push_back(&step);
    lanes.push_back(lane);
    next.emplace_back();
    if (s > 0) next[steps.size() - 2].push_back(static_cast<int>(steps.size()) - 1);
  });
  std::vector<std::vector<int>> signals(plan_.channels.size());
  std::vector<int> taken(plan_.channels.size(), 0);
  for (size_t s = 0; s < steps.size(); ++s) {
    for (const int channel : steps[s]->signals) signals[channel].push_back(static_cast<int>(s));
  }
  for (size_t s = 0; s < steps.size(); ++s) {
    for (const Wait& wait : steps[s]->waits) {
      taken[wait.channel] += wait.count;
      const int number = taken[wait.channel] - plan_.channels[wait.channel].credits;
      const auto& sent = signals[wait.channel];
      if (number < 1 || number > static_cast<int>(sent.size())) continue;
      next[sent[number - 1]].push_back(static_cast<int>(s));
    }
  }
  using Chunk = std::tuple<int, Buffer, int>;  // of a rank
  std::map<Chunk, std::vector<int>> users;
  const auto forEachChunk = [](const Step& step, const std::vector<Place>& places,
                               const auto& visit) {
    for (const Place& place : places) {
      for (int i = 0; i < step.count && !isPacket(step, place); ++i) {
        visit(Chunk{place.rank, place.buffer, place.index + i});
      }
    }
  };
  for (size_t s = 0; s < steps.size(); ++s) {
    const auto note = [&](const Chunk& chunk) { users[chunk].push_back(static_cast<int>(s)); };
    forEachChunk(*steps[s], steps[s]->from, note);
    forEachChunk(*steps[s], steps[s]->to, note);
  }
  for (size_t s = 0; s < steps.size(); ++s) {
    std::set<int> others;
    forEachChunk(*steps[s], steps[s]->to, [&](const Chunk& chunk) {
      for (const int user : users.at(chunk)) {
        if (lanes[user] != lanes[s]) others.insert(user);
      }
    });
    if (others.empty()) continue;
    std::vector<bool> isReached(steps.size(), false);
    std::vector<int> open = {static_cast<int>(s)};
    while (!open.empty()) {
      const int step = open.back();
      open.pop_back();
      for (const int after : next[step]) {
        if (isReached[after]) continue;
        if (others.contains(after)) return true;
        isReached[after] = true;
        open.push_back(after);
      }
    }
  }
  return false;
}

}  // namespace ctran::plan
