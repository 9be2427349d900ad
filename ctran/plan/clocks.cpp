#include "ctran/plan/clocks.h"

#include <algorithm>

namespace ctran::plan {

Clocks::Clocks(const std::vector<Channel>& channels, const std::vector<int>& firstLane)
    : firstLane_(firstLane) {
  const size_t lanes = firstLane.back();
  lanes_.assign(lanes, Clock(lanes, 0));
  channelsFrom_.resize(lanes);
  for (const Channel& channel : channels) {
    const int from = laneNumber(channel.from);
    channelsFrom_[from].push_back(static_cast<int>(channels_.size()));
    channels_.push_back(
        {from, laneNumber(channel.to), channel.to.rank, channel.credits, 0, {}, {}, {}});
  }
}

bool Clocks::arrived(const Wait& wait) const {
  const State& channel = channels_[wait.channel];
  return channel.waited + wait.count <= signalled(wait.channel) + channel.credits;
}

void Clocks::wait(const Wait& wait, int lane) {
  State& channel = channels_[wait.channel];
  const size_t before = channel.waitedAt.size();
  channel.waited += wait.count;
  if (channel.waited <= channel.credits) return;
  const size_t taken = channel.waited - channel.credits;
  learn(lane, channel.clocks[taken - 1]);
  channel.waitedAt.resize(taken, lanes_[lane][lane] + 1);
  for (size_t i = before; i < taken; ++i) Clock().swap(channel.clocks[i]);
}

void Clocks::learn(int lane, const Clock& other) {
  Clock& clock = lanes_[lane];
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

void Clocks::signal(int channel, int lane) {
  channels_[channel].events.push_back(lanes_[lane][lane]);
  channels_[channel].clocks.push_back(lanes_[lane]);
}

bool Clocks::isBefore(const Access& access, int lane, const Clock& clock, int putTo) const {
  if (access.lane < 0) return true;
  if (access.putTo < 0) return access.lane == lane || clock[access.lane] >= access.event;
  if (access.lane == lane && access.putTo == putTo) return true;  // puts stay in order
  for (const int index : channelsFrom_[access.lane]) {
    const State& channel = channels_[index];
    if (channel.toRank != access.putTo) continue;
    const auto first = std::lower_bound(channel.events.begin(), channel.events.end(), access.event);
    const size_t signal = first - channel.events.begin();
    if (signal < channel.waitedAt.size() && clock[channel.to] >= channel.waitedAt[signal]) {
      return true;
    }
  }
  return false;
}

void Clocks::join(const std::vector<int>& lanes) {
  Clock all(lanes_.size(), 0);
  for (const int lane : lanes) {
    for (size_t i = 0; i < all.size(); ++i) all[i] = std::max(all[i], lanes_[lane][i]);
  }
  for (const int lane : lanes) lanes_[lane] = all;
}

}  // namespace ctran::plan
