#pragma once

#include <cstdint>
#include <vector>

#include "ctran/plan/plan.h"

namespace ctran::plan {

/// An access to memory, for those who have to be ordered with it.
struct Access {
  int lane = -1;       ///< number of the lane; -1: there was none
  uint32_t event = 0;  ///< its count of steps, from 1
  int putTo = -1;      ///< the rank whose memory it wrote, if not the lane's own
};

/// What has happened before what: a vector clock per lane, and the signals that order lanes.
///
/// A put is seen by those who have seen a later signal of its lane to the same rank; the lane's own
/// clock says only that it was issued.
class Clocks {
 public:
  using Clock = std::vector<uint32_t>;  ///< steps of each lane that have happened before

  /// Lanes are numbered rank by rank: those of rank r are firstLane[r] to firstLane[r + 1] - 1.
  Clocks(const std::vector<Channel>& channels, const std::vector<int>& firstLane);

  int laneNumber(LaneId id) const { return firstLane_[id.rank] + id.lane; }
  const Clock& clock(int lane) const { return lanes_[lane]; }

  /// Whether `count` more signals are there.
  bool arrived(const Wait& wait) const;
  /// The lane takes them, in its next step.
  void wait(const Wait& wait, int lane);
  /// The waits of the step are over: it happens.
  uint32_t beginStep(int lane) { return ++lanes_[lane][lane]; }
  void signal(int channel, int lane);

  /// Whether `access` happened before something that a lane with this clock does now; what it does
  /// is itself a put to rank `putTo`, or not (-1).
  bool isBefore(const Access& access, int lane, const Clock& clock, int putTo) const;

  /// The lane comes to know what `other` has.
  void learn(int lane, const Clock& other);

  /// What the lane knows is known to all of `lanes`, and the other way round.
  void join(const std::vector<int>& lanes);

  int signalled(int channel) const { return static_cast<int>(channels_[channel].events.size()); }

 private:
  struct State {
    int from, to;  // lanes
    int toRank;
    int credits;
    int waited = 0;
    std::vector<uint32_t> events;    // of the producer, per signal
    std::vector<Clock> clocks;       // at each signal; empty once waited for
    std::vector<uint32_t> waitedAt;  // event of the consumer, per signal
  };

  std::vector<int> firstLane_;
  std::vector<Clock> lanes_;
  std::vector<State> channels_;
  std::vector<std::vector<int>> channelsFrom_;  // per lane
};

}  // namespace ctran::plan
