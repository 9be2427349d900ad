#include "ctran/plan/staging.h"

#include <algorithm>
#include <map>
#include <set>

#include "ctran/plan/verify.h"

namespace ctran::plan {
namespace {

/// How often the lanes of a rank meet on account of copies.
enum class Barriers {
  Fewer,   ///< Not even where the plan has them meet in the end.
  NoMore,  ///< As in the plan: each copies what it, or a lane that it signals or hears, reaches.
  More,    ///< After copies to scratch, and before those from it; each copies as much.
};

class Staging {
 public:
  Staging(const Plan& plan, Barriers barriers) : plan_(plan), barriers_(barriers), result_(plan) {}

  Plan run() {
    findReached();
    if (barriers_ != Barriers::More) findOwners();
    for (const auto& [buffer, chunks] : reached_) {
      first_[buffer] = result_.scratch;
      result_.scratch += plan_.size(buffer);
    }
    if (first_.empty()) return plan_;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      for (Lane& lane : result_.programs[rank]) {
        for (Step& step : lane) {
          for (Place& place : step.from) move(place);
          for (Place& place : step.to) move(place);
        }
      }
      addCopies(rank);
    }
    return std::move(result_);
  }

 private:
  template <class Visit>
  void forEachPlace(const Visit& visit) const {
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const auto& lanes = plan_.programs[rank];
      for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
        for (const Step& step : lanes[lane]) {
          for (const auto* places : {&step.from, &step.to}) {
            for (const Place& place : *places) {
              if (place.buffer != Buffer::Scratch) visit(LaneId{rank, lane}, place, step.count);
            }
          }
        }
      }
    }
  }

  /// The chunks that other ranks reach, and those that a step takes together with such.
  void findReached() {
    bool hasMore = true;
    for (bool isFirst = true; hasMore; isFirst = false) {
      hasMore = false;
      forEachPlace([&](LaneId lane, const Place& place, int count) {
        const bool is = isFirst ? place.rank != lane.rank : isReached(place, count);
        if (!is) return;
        auto& chunks = reached_[place.buffer][place.rank];
        for (int i = 0; i < count; ++i) hasMore |= chunks.insert(place.index + i).second;
      });
    }
  }

  /// The lanes that copy chunks, where one has to do with them.
  void findOwners() {
    std::map<std::pair<int, LaneId>, int> partners;  // of a lane of another rank, on a rank
    for (const Channel& channel : plan_.channels) {
      partners.try_emplace({channel.from.rank, channel.to}, channel.from.lane);
      partners.try_emplace({channel.to.rank, channel.from}, channel.to.lane);
    }
    for (const bool isOwn : {true, false}) {
      forEachPlace([&](LaneId lane, const Place& place, int count) {
        if ((place.rank == lane.rank) != isOwn) return;
        const auto partner = partners.find({place.rank, lane});
        if (!isOwn && partner == partners.end()) return;
        for (int i = 0; i < count; ++i) {
          owners_.try_emplace({place.buffer, place.rank, place.index + i},
                              isOwn ? lane.lane : partner->second);
        }
      });
    }
  }

  /// Whether one of those chunks is.
  bool isReached(const Place& place, int count) const {
    const auto buffer = reached_.find(place.buffer);
    if (buffer == reached_.end()) return false;
    const auto chunks = buffer->second.find(place.rank);
    if (chunks == buffer->second.end()) return false;
    const auto next = chunks->second.lower_bound(place.index);
    return next != chunks->second.end() && *next < place.index + count;
  }

  void move(Place& place) const {
    if (!isReached(place, 1)) return;
    place = {place.rank, Buffer::Scratch, first_.at(place.buffer) + place.index};
  }

  /// Each lane copies a share of what there is before it begins, and of the output when it has
  /// ended. Its shares are of the same chunks, so that in the next execution it may begin again.
  void addCopies(int rank) {
    auto& lanes = result_.programs[rank];
    const int count = static_cast<int>(lanes.size());
    std::vector<Lane> before(count), after(count);
    for (int lane = 0; lane < count; ++lane) {
      addCopies(before[lane], {rank, lane}, plan_.inPlace ? Buffer::Output : Buffer::Input, true);
      addCopies(after[lane], {rank, lane}, Buffer::Output, false);
    }
    std::vector<Lane> ends(count);
    if (barriers_ == Barriers::More) {
      addBarrier(rank, before);
      addBarrier(rank, ends);
    }
    for (int lane = 0; lane < count; ++lane) {
      Lane& all = lanes[lane];
      all.insert(all.end(), ends[lane].begin(), ends[lane].end());
      auto end = barriers_ == Barriers::More ? all.end() : barrierAtTheEnd(all);
      if (barriers_ == Barriers::Fewer) end = all.erase(end, all.end());
      all.insert(end, after[lane].begin(), after[lane].end());
      all.insert(all.begin(), before[lane].begin(), before[lane].end());
    }
  }

  /// The steps at the end in which a lane waits for nothing but lanes of its rank.
  Lane::iterator barrierAtTheEnd(Lane& lane) const {
    const auto meets = [&](const Step& step) {
      return !step.moves() && std::all_of(step.waits.begin(), step.waits.end(), [&](Wait wait) {
        const Channel& channel = plan_.channels[wait.channel];
        return channel.from.rank == channel.to.rank;
      });
    };
    auto first = lane.end();
    while (first != lane.begin() && meets(*std::prev(first))) --first;
    return first;
  }

  /// The lanes of a rank meet: all tell the first, which tells all.
  void addBarrier(int rank, std::vector<Lane>& lanes) {
    Step heard, tell;
    for (int lane = 1; lane < static_cast<int>(lanes.size()); ++lane) {
      const LaneId here{rank, 0}, there{rank, lane};
      Step come, go;
      come.signals = {addChannel(there, here)};
      heard.waits.push_back({come.signals[0], 1});
      tell.signals.push_back(addChannel(here, there));
      go.waits = {{tell.signals.back(), 1}};
      lanes[lane].insert(lanes[lane].end(), {come, go});
    }
    if (!tell.signals.empty()) lanes[0].insert(lanes[0].end(), {heard, tell});
  }

  /// Whether the block holds input in the beginning.
  bool isFilled(int rank, int block) const {
    if (plan_.kind == CollectiveKind::Broadcast) return rank == plan_.root;
    return !plan_.inPlace || plan_.kind != CollectiveKind::AllGather || block == rank;
  }

  /// The lane's share of the chunks that others reach; to scratch, of those that hold input.
  void addCopies(Lane& lane, LaneId id, Buffer buffer, bool toScratch) const {
    const auto reached = reached_.find(buffer);
    if (reached == reached_.end() || !reached->second.contains(id.rank)) return;
    const std::set<int>& chunks = reached->second.at(id.rank);
    const std::vector<int> all(chunks.begin(), chunks.end());
    const size_t lanes = plan_.programs[id.rank].size();
    const auto laneOf = [&](size_t i) {
      const auto owner = owners_.find({buffer, id.rank, all[i]});
      return owner != owners_.end() ? owner->second : static_cast<int>(i * lanes / all.size());
    };
    for (size_t i = 0; i < all.size(); ++i) {
      if (laneOf(i) != id.lane) continue;
      const int chunk = all[i], part = chunk % plan_.chunks;
      if (toScratch && !isFilled(id.rank, chunk / plan_.chunks)) continue;
      const bool follows =
          i > 0 && all[i - 1] == chunk - 1 && laneOf(i - 1) == id.lane && part > 0 && !lane.empty();
      if (follows) {
        ++lane.back().count;
        continue;
      }
      const Place place{id.rank, buffer, chunk};
      Place scratch = place;
      move(scratch);
      Step step;
      step.from = {toScratch ? place : scratch};
      step.to = {toScratch ? scratch : place};
      step.part = part;
      lane.push_back(std::move(step));
    }
  }

  int addChannel(LaneId from, LaneId to) {
    result_.channels.push_back({from, to, 0});
    return static_cast<int>(result_.channels.size()) - 1;
  }

  const Plan& plan_;
  const Barriers barriers_;
  Plan result_;
  std::map<Buffer, std::map<int, std::set<int>>> reached_;  // chunks of a rank's buffer
  std::map<std::tuple<Buffer, int, int>, int> owners_;      // lanes, of such chunks
  std::map<Buffer, int> first_;  // chunk of scratch that a buffer begins at
};

}  // namespace

Plan staged(const Plan& plan) {
  // A barrier takes as long as a small message: lanes that are right without go without.
  const bool areSeveral =
      std::any_of(plan.programs.begin(), plan.programs.end(),
                  [](const std::vector<Lane>& lanes) { return lanes.size() > 1; });
  if (areSeveral) {
    for (const Barriers barriers : {Barriers::Fewer, Barriers::NoMore}) {
      Plan made = Staging(plan, barriers).run();
      if (made == plan || verify(made).ok()) return made;
    }
  }
  return Staging(plan, Barriers::More).run();
}

}  // namespace ctran::plan
