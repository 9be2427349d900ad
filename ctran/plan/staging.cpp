#include "ctran/plan/staging.h"

#include <algorithm>
#include <map>

namespace ctran::plan {
namespace {

class Staging {
 public:
  explicit Staging(const Plan& plan) : plan_(plan), result_(plan) {}

  Plan run() {
    for (const Buffer buffer : {Buffer::Input, Buffer::Output}) {
      if (!isReached(buffer)) continue;
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
  bool isReached(Buffer buffer) const {
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const auto reached = [&](const Place& place) {
        return place.buffer == buffer && place.rank != rank;
      };
      for (const Lane& lane : plan_.programs[rank]) {
        for (const Step& step : lane) {
          if (std::any_of(step.from.begin(), step.from.end(), reached) ||
              std::any_of(step.to.begin(), step.to.end(), reached)) {
            return true;
          }
        }
      }
    }
    return false;
  }

  void move(Place& place) const {
    const auto first = first_.find(place.buffer);
    if (first == first_.end()) return;
    place = {place.rank, Buffer::Scratch, first->second + place.index};
  }

  /// Each lane copies a share of what there is, and begins when all have; and of the output, when
  /// all have ended. Its shares are of the same chunks, so that in the next execution it may begin
  /// again.
  void addCopies(int rank) {
    auto& lanes = result_.programs[rank];
    const int count = static_cast<int>(lanes.size());
    std::vector<Lane> before(count), after(count);
    for (int lane = 0; lane < count; ++lane) {
      const Buffer filled = plan_.inPlace ? Buffer::Output : Buffer::Input;
      for (const int block : filledBlocks(rank)) {
        if (first_.contains(filled)) addCopy(before[lane], {rank, lane}, filled, block, true);
      }
      for (int block = 0; first_.contains(Buffer::Output) && block < plan_.blocks(Buffer::Output);
           ++block) {
        addCopy(after[lane], {rank, lane}, Buffer::Output, block, false);
      }
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

  /// The blocks that hold the input in the beginning.
  std::vector<int> filledBlocks(int rank) const {
    if (plan_.kind == CollectiveKind::Broadcast && rank != plan_.root) return {};
    if (plan_.inPlace && plan_.kind == CollectiveKind::AllGather) return {rank};
    std::vector<int> blocks;
    for (int block = 0; block < plan_.blocks(Buffer::Input); ++block) blocks.push_back(block);
    return blocks;
  }

  /// The lane's share of a block, if it has one.
  void addCopy(Lane& lane, LaneId id, Buffer buffer, int block, bool toScratch) const {
    const int lanes = static_cast<int>(plan_.programs[id.rank].size());
    const int begin = plan_.chunks * id.lane / lanes;
    const int end = plan_.chunks * (id.lane + 1) / lanes;
    if (begin == end) return;
    const Place place{id.rank, buffer, block * plan_.chunks + begin};
    Place scratch = place;
    move(scratch);
    Step step;
    step.from = {toScratch ? place : scratch};
    step.to = {toScratch ? scratch : place};
    step.count = end - begin;
    step.part = begin;
    lane.push_back(std::move(step));
  }

  int addChannel(LaneId from, LaneId to) {
    result_.channels.push_back({from, to, 0});
    return static_cast<int>(result_.channels.size()) - 1;
  }

  const Plan& plan_;
  Plan result_;
  std::map<Buffer, int> first_;  // chunk of scratch that a buffer begins at
};

}  // namespace

Plan staged(const Plan& plan) { return Staging(plan).run(); }

}  // namespace ctran::plan
