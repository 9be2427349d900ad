// Whether a plan is well-formed. What it does is the verifier's business.
#include <algorithm>
#include <cstdlib>

#include "ctran/base/error.h"
#include "ctran/plan/plan.h"

namespace ctran::plan {
namespace {

constexpr int kMaxPlanRanks = 1024;
constexpr int kMaxChunks = 1 << 20;

[[noreturn]] void rejectPlan(const Plan& plan, const std::string& why) {
  throw Error(ErrorKind::InvalidArgument, "plan '" + plan.name + "': " + why);
}

void need(const Plan& plan, bool condition, const char* what, int value) {
  if (!condition) rejectPlan(plan, std::string(what) + " must not be " + std::to_string(value));
}

/// Checks one step.
class StepCheck {
 public:
  StepCheck(const Plan& plan, LaneId at, int index)
      : plan_(plan), at_(at), index_(index), step_(plan.lane(at)[index]) {}

  void run() const {
    if (step_.waits.empty() && step_.to.empty() && step_.signals.empty()) {
      fail("it does nothing");
    }
    if (step_.to.empty() != step_.from.empty()) fail("a move needs sources and destinations");
    if (step_.moves()) checkMove();
    for (const Wait& wait : step_.waits) {
      if (channel(wait.channel).to != at_) {
        fail("it waits on channel " + std::to_string(wait.channel) + ", which ends at " +
             text(channel(wait.channel).to));
      }
      if (wait.count < 1) fail("it waits for " + std::to_string(wait.count) + " signals");
    }
    for (const int signal : step_.signals) {
      if (channel(signal).from != at_) {
        fail("it signals channel " + std::to_string(signal) + ", which starts at " +
             text(channel(signal).from));
      }
    }
  }

 private:
  static std::string text(LaneId lane) {
    return "rank " + std::to_string(lane.rank) + ", lane " + std::to_string(lane.lane);
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw StepError("plan '" + plan_.name + "': " + toText(at_, index_) + ": " + why, why, at_,
                    index_);
  }

  const Channel& channel(int index) const {
    if (index < 0 || index >= static_cast<int>(plan_.channels.size())) {
      fail("there is no channel " + std::to_string(index));
    }
    return plan_.channels[index];
  }

  void checkMove() const {
    if (step_.count < 1 || step_.count > kMaxChunks)
      fail("it moves " + std::to_string(step_.count) + " chunks");
    if (step_.part < 0 || step_.part >= plan_.chunks) {
      fail("a block has " + std::to_string(plan_.chunks) + " parts, there is no part " +
           std::to_string(step_.part));
    }
    for (const Place& place : step_.from) checkPlace(place);
    for (const Place& place : step_.to) {
      checkPlace(place);
      if (place.buffer == Buffer::Input) fail("it writes to the input");
      const auto overlaps = [&](const Place& other) {
        const int64_t distance = std::abs(int64_t{place.index} - other.index);
        return place.rank == other.rank && place.buffer == other.buffer && distance != 0 &&
               distance < step_.count;
      };
      if (std::any_of(step_.from.begin(), step_.from.end(), overlaps)) {
        fail("a destination overlaps a source");
      }
      if (std::any_of(step_.to.begin(), step_.to.end(), overlaps)) {
        fail("a destination overlaps another");
      }
    }
    if (step_.packet) {
      for (const Place& place : step_.to) {
        const bool remote = place.rank != at_.rank;
        if (remote && place.buffer != Buffer::Scratch) fail("packets go to scratch alone");
        if (remote && step_.signals.empty()) fail("a packet that is put carries a signal");
      }
    }
  }

  void checkPlace(const Place& place) const {
    if (place.rank < 0 || place.rank >= plan_.ranks) {
      fail("there is no rank " + std::to_string(place.rank));
    }
    if (plan_.inPlace && place.buffer == Buffer::Input) {
      fail("the plan is in place: its input is the output");
    }
    const int size = plan_.size(place.buffer);
    if (place.index < 0 || place.index > size - step_.count) {
      fail(std::string(nameOf(place.buffer)) + " has chunks 0 to " + std::to_string(size - 1) +
           ", not " + std::to_string(place.index) +
           (step_.count > 1 ? " and the next " + std::to_string(step_.count - 1) : ""));
    }
    if (place.buffer != Buffer::Scratch && place.index % plan_.chunks != step_.part) {
      fail("chunk " + std::to_string(place.index) + " of " + std::string(nameOf(place.buffer)) +
           " is part " + std::to_string(place.index % plan_.chunks) + " of a block, but part " +
           std::to_string(step_.part) + " is moved; they differ in size");
    }
  }

  const Plan& plan_;
  const LaneId at_;
  const int index_;
  const Step& step_;
};

}  // namespace

void check(const Plan& plan) {
  if (!isPlannable(plan.kind)) {
    rejectPlan(plan, "there are no plans for " + std::string(nameOf(plan.kind)));
  }
  need(plan, plan.ranks >= 1 && plan.ranks <= kMaxPlanRanks, "the number of ranks", plan.ranks);
  need(plan, plan.root >= 0 && plan.root < plan.ranks, "the root", plan.root);
  need(plan, plan.chunks >= 1 && plan.chunks <= kMaxChunks, "the number of chunks", plan.chunks);
  need(plan, plan.scratch >= 0 && plan.scratch <= kMaxChunks, "the scratch", plan.scratch);
  need(plan, plan.depth >= 1 && plan.depth <= 16, "the depth", plan.depth);
  if (plan.open) {
    if (plan.kind != CollectiveKind::AllReduce) rejectPlan(plan, "an open plan is an all_reduce");
    for (const int blocks : {plan.open->inputs, plan.open->outputs}) {
      need(plan, blocks >= 0 && blocks <= kMaxChunks / plan.chunks, "the number of blocks", blocks);
    }
    if (plan.inPlace && plan.open->inputs != plan.open->outputs) {
      rejectPlan(plan, "input and output differ in size, so the plan is not in place");
    }
  }
  if (plan.kind == CollectiveKind::Broadcast && !plan.inPlace) {
    rejectPlan(plan, "a broadcast has no input but the root's output: it is in place");
  }
  if (plan.kind == CollectiveKind::ReduceScatter && plan.inPlace) {
    rejectPlan(plan, "a reduce_scatter cannot be written in place: its output is one block");
  }
  if (static_cast<int>(plan.programs.size()) != plan.ranks) {
    rejectPlan(plan, std::to_string(plan.ranks) + " ranks need as many programs, not " +
                         std::to_string(plan.programs.size()));
  }
  const auto exists = [&](LaneId id) {
    return id.rank >= 0 && id.rank < plan.ranks && id.lane >= 0 &&
           id.lane < static_cast<int>(plan.programs[id.rank].size());
  };
  for (size_t i = 0; i < plan.channels.size(); ++i) {
    const Channel& channel = plan.channels[i];
    if (!exists(channel.from) || !exists(channel.to) || channel.from == channel.to) {
      rejectPlan(plan, "channel " + std::to_string(i) + " needs two lanes that exist as its ends");
    }
    need(plan, channel.credits >= 0, "the credits of a channel", channel.credits);
  }
  for (int r = 0; r < plan.ranks; ++r) {
    for (int l = 0; l < static_cast<int>(plan.programs[r].size()); ++l) {
      for (int s = 0; s < static_cast<int>(plan.programs[r][l].size()); ++s) {
        StepCheck(plan, {r, l}, s).run();
      }
    }
  }
}

}  // namespace ctran::plan
