#include "ctran/plan/mscclpp/parts.h"

#include <algorithm>
#include <map>

namespace ctran::plan::mscclpp {
namespace {

using ScratchSlot = std::pair<int, int>;  // rank, chunk of scratch

/// What is in a user's buffer is the part that it has to be; what is in scratch is that which was
/// written there last. So the steps are taken in an order in which they may be executed.
class Settling {
 public:
  explicit Settling(Plan& plan) : plan_(plan) {
    for (const Channel& channel : plan.channels) signals_.push_back(channel.credits);
    for (const auto& lanes : plan.programs) next_.emplace_back(lanes.size());
  }

  void run() {
    while (passOver(false)) continue;
    passOver(true);  // what waits for ever is told elsewhere
  }

 private:
  /// Settles what can be executed, or all that is left; whether it was anything.
  bool passOver(bool waitsAreOver) {
    bool any = false;
    for (int r = 0; r < plan_.ranks; ++r) {
      for (size_t l = 0; l < plan_.programs[r].size(); ++l) {
        Lane& lane = plan_.programs[r][l];
        for (size_t& next = next_[r][l]; next < lane.size(); ++next) {
          Step& step = lane[next];
          const auto come = [&](const Wait& wait) { return signals_[wait.channel] >= wait.count; };
          if (!waitsAreOver && !std::all_of(step.waits.begin(), step.waits.end(), come)) break;
          for (const Wait& wait : step.waits) signals_[wait.channel] -= wait.count;
          settle(step);
          for (const int signal : step.signals) ++signals_[signal];
          any = true;
        }
      }
    }
    return any;
  }

  void settle(Step& step) {
    if (!step.moves()) return;
    const int part = partOf(step);
    if (part < 0) return;
    step.part = part;
    for (const Place& place : step.to) {
      for (int i = 0; i < step.count && place.buffer == Buffer::Scratch; ++i) {
        parts_[{place.rank, place.index + i}] = (part + i) % plan_.chunks;
      }
    }
  }

  /// The part that a step moves; -1: nobody knows.
  int partOf(const Step& step) const {
    for (const auto* places : {&step.from, &step.to}) {
      for (const Place& place : *places) {
        if (place.buffer != Buffer::Scratch) return place.index % plan_.chunks;
      }
    }
    for (const Place& place : step.from) {
      const auto known = parts_.find({place.rank, place.index});
      if (known != parts_.end()) return known->second;
    }
    return -1;
  }

  Plan& plan_;
  std::vector<int64_t> signals_;           // by channel: that have come and are not waited for yet
  std::vector<std::vector<size_t>> next_;  // [rank][lane]: step
  std::map<ScratchSlot, int> parts_;
};

}  // namespace

void settleParts(Plan& plan) { Settling(plan).run(); }

}  // namespace ctran::plan::mscclpp
