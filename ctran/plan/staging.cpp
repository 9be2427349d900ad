#include "ctran/plan/staging.h"

#include <algorithm>
#include <map>
#include <set>

namespace ctran::plan {
namespace {

class Staging {
 public:
  explicit Staging(const Plan& plan) : plan_(plan), result_(plan) {}

  Plan run() {
    findReached();
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
      for (const Lane& lane : plan_.programs[rank]) {
        for (const Step& step : lane) {
          for (const auto* places : {&step.from, &step.to}) {
            for (const Place& place : *places) {
              if (place.buffer != Buffer::Scratch) visit(rank, place, step.count);
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
      forEachPlace([&](int rank, const Place& place, int count) {
        const bool is = isFirst ? place.rank != rank : isReached(place, count);
        if (!is) return;
        auto& chunks = reached_[place.buffer][place.rank];
        for (int i = 0; i < count; ++i) hasMore |= chunks.insert(place.index + i).second;
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

  /// Each lane copies a share of what there is, and begins when all have; and of the output, when
  /// all have ended. Its shares are of the same chunks, so that in the next execution it may begin
  /// again.
  void addCopies(int rank) {
    auto& lanes = result_.programs[rank];
    const int count = static_cast<int>(lanes.size());
    std::vector<Lane> before(count), after(count);
    for (int lane = 0; lane < count; ++lane) {
      addCopies(before[lane], {rank, lane}, plan_.inPlace ? Buffer::Output : Buffer::Input, true);
      addCopies(after[lane], {rank, lane}, Buffer::Output, false);
    }
    addMeeting(rank, before);
    std::vector<Lane> ends(count);
    addMeeting(rank, ends);
    for (int lane = 0; lane < count; ++lane) {
      Lane& all = before[lane];
      for (const Lane* part : {&lanes[lane], &ends[lane], &after[lane]}) {
        all.insert(all.end(), part->begin(), part->end());
      }
      lanes[lane] = std::move(all);
    }
  }

  /// The lanes of a rank meet: all tell the first, which tells all.
  void addMeeting(int rank, std::vector<Lane>& lanes) {
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
    const size_t begin = all.size() * id.lane / lanes, end = all.size() * (id.lane + 1) / lanes;
    for (size_t i = begin; i < end; ++i) {
      const int chunk = all[i], part = chunk % plan_.chunks;
      if (toScratch && !isFilled(id.rank, chunk / plan_.chunks)) continue;
      const bool follows = i > begin && all[i - 1] == chunk - 1 && part > 0 && !lane.empty();
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
  Plan result_;
  std::map<Buffer, std::map<int, std::set<int>>> reached_;  // chunks of a rank's buffer
  std::map<Buffer, int> first_;  // chunk of scratch that a buffer begins at
};

}  // namespace

Plan staged(const Plan& plan) { return Staging(plan).run(); }

}  // namespace ctran::plan
