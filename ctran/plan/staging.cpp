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

  /// The first lane copies what there is before the others begin, and the output when all others
  /// have ended. So they begin the next execution when that has been copied, too.
  void addCopies(int rank) {
    auto& lanes = result_.programs[rank];
    Lane first;
    for (const int block : filledBlocks(rank)) {
      const Buffer buffer = plan_.inPlace ? Buffer::Output : Buffer::Input;
      if (first_.contains(buffer)) first.push_back(copy(rank, buffer, block, true));
    }
    Step begin, end;
    for (int lane = 1; lane < static_cast<int>(lanes.size()); ++lane) {
      const LaneId here{rank, 0}, there{rank, lane};
      Step wait, tell;
      wait.waits = {{addChannel(here, there), 1}};
      begin.signals.push_back(wait.waits[0].channel);
      tell.signals = {addChannel(there, here)};
      end.waits.push_back({tell.signals[0], 1});
      lanes[lane].insert(lanes[lane].begin(), wait);
      lanes[lane].push_back(tell);
    }
    if (!begin.signals.empty()) first.push_back(begin);
    first.insert(first.end(), lanes[0].begin(), lanes[0].end());
    if (!end.waits.empty()) first.push_back(end);
    for (int block = 0; first_.contains(Buffer::Output) && block < plan_.blocks(Buffer::Output);
         ++block) {
      first.push_back(copy(rank, Buffer::Output, block, false));
    }
    lanes[0] = std::move(first);
  }

  /// The blocks that hold the input in the beginning.
  std::vector<int> filledBlocks(int rank) const {
    if (plan_.kind == CollectiveKind::Broadcast && rank != plan_.root) return {};
    if (plan_.inPlace && plan_.kind == CollectiveKind::AllGather) return {rank};
    std::vector<int> blocks;
    for (int block = 0; block < plan_.blocks(Buffer::Input); ++block) blocks.push_back(block);
    return blocks;
  }

  Step copy(int rank, Buffer buffer, int block, bool toScratch) const {
    const Place place{rank, buffer, block * plan_.chunks};
    Place scratch = place;
    move(scratch);
    Step step;
    step.from = {toScratch ? place : scratch};
    step.to = {toScratch ? scratch : place};
    step.count = plan_.chunks;
    return step;
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
