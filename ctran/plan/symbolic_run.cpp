#include "ctran/plan/symbolic_run.h"

#include <algorithm>
#include <climits>
#include <numeric>

#include "ctran/base/error.h"

namespace ctran::plan {
namespace {

std::string placeText(const Place& place, int offset) {
  return std::string(nameOf(place.buffer)) + "[" + std::to_string(place.index + offset) +
         "] of rank " + std::to_string(place.rank);
}

}  // namespace

SymbolicRun::SymbolicRun(std::vector<const Plan*> executions, bool inPlace)
    : executions_(std::move(executions)), inPlace_(inPlace), ranks_(executions_[0]->ranks) {
  double cells = 0;
  for (const Plan* plan : executions_) {
    cells += static_cast<double>(ranks_) *
             (plan->size(Buffer::Input) + plan->size(Buffer::Output) + plan->scratch);
  }
  if (cells > kMaxCells) {
    throw Error(ErrorKind::Unsupported,
                "plan '" + executions_[0]->name + "' has too many chunks to be verified");
  }
  number();
  const Plan& first = planOf(0);
  properties.separateFinals = true;
  properties.finals.resize(ranks_);
  for (int r = 0; r < ranks_; ++r) {
    for (const Lane& lane : first.programs[r]) {
      properties.finals[r].emplace_back(lane.size(), false);
    }
  }
  // The inputs are there.
  for (size_t e = 0; e < executions_.size(); ++e) {
    const Plan& plan = planOf(e);
    for (int r = 0; r < ranks_; ++r) {
      if (plan.kind == CollectiveKind::Broadcast && r != plan.root) continue;
      for (int i = 0; i < plan.size(Buffer::Input); ++i) {
        Place place{r, Buffer::Input, i};
        if (plan.inPlace) {
          const bool ownBlock = plan.kind == CollectiveKind::AllGather;
          place = {r, Buffer::Output, ownBlock ? r * plan.chunks + i : i};
        }
        Cell& c = cell(static_cast<int>(e), place, 0);
        c.value = symbols.input(static_cast<int>(e), r, i);
        c.part = i % plan.chunks;
      }
    }
  }
}

/// Lanes, channels and memory of all plans.
void SymbolicRun::number() {
  std::vector<int> lanes(ranks_, 0);
  std::vector<Channel> channels;
  for (size_t e = 0; e < executions_.size(); ++e) {
    const Plan& plan = planOf(e);
    for (int r = 0; r < ranks_; ++r) {
      lanes[r] = std::max(lanes[r], static_cast<int>(plan.programs[r].size()));
    }
    const bool again = e > 0 && executions_[e - 1] == executions_[e];
    firstChannel_.push_back(again ? firstChannel_.back() : static_cast<int>(channels.size()));
    depthIndex_.push_back(again ? (depthIndex_.back() + 1) % plan.depth : 0);
    if (!again) {
      channels.insert(channels.end(), plan.channels.begin(), plan.channels.end());
      scratch_.emplace_back(ranks_, std::vector<Cell>(plan.scratch * plan.depth));
      uses_.emplace_back(ranks_);
    }
    scratchOf_.push_back(static_cast<int>(scratch_.size()) - 1);
    const int user = plan.size(Buffer::Input) + plan.size(Buffer::Output);
    user_.emplace_back(ranks_, std::vector<Cell>(user));
  }
  firstLane_.push_back(0);
  for (int r = 0; r < ranks_; ++r) {
    for (int l = 0; l < lanes[r]; ++l) {
      lanes_.emplace_back();
      lanes_.back().id = {r, l};
    }
    firstLane_.push_back(static_cast<int>(lanes_.size()));
  }
  ends_.assign(executions_.size(), std::vector<std::vector<Clocks::Clock>>(ranks_));
  begins_.assign(executions_.size(), std::vector<uint32_t>(lanes_.size(), kNotYet));
  begins_[0].assign(lanes_.size(), 0);
  clocks_.emplace(channels, firstLane_);
}

SymbolicRun::Cell& SymbolicRun::cell(int execution, const Place& place, int offset) {
  const Plan& plan = planOf(execution);
  int index = place.index + offset;
  if (place.buffer == Buffer::Scratch) {
    return scratch_[scratchOf_[execution]][place.rank]
                   [depthIndex_[execution] * plan.scratch + index];
  }
  Buffer buffer = place.buffer;
  if (inPlace_) {  // one of the two buffers is the other, or a part of it
    const int own = place.rank * plan.chunks;
    if (plan.kind == CollectiveKind::ReduceScatter) {
      if (buffer == Buffer::Output) index += own;
      buffer = Buffer::Input;
    } else {
      if (buffer == Buffer::Input && plan.kind == CollectiveKind::AllGather) index += own;
      buffer = Buffer::Output;
    }
  }
  if (buffer == Buffer::Output) index += plan.size(Buffer::Input);
  return user_[execution][place.rank][index];
}

Symbols::Id SymbolicRun::value(int execution, const Place& place, int offset) {
  return cell(execution, place, offset).value;
}

Moment SymbolicRun::writer(int execution, const Place& place) {
  return cell(execution, place, 0).writer;
}

Moment SymbolicRun::maker(int execution, const Place& place) {
  return cell(execution, place, 0).maker;
}

bool SymbolicRun::run() {
  bool moved = true;
  bool ended = false;
  while (moved && !ended) {
    moved = false;
    ended = true;
    for (LaneState& state : lanes_) {
      while (!state.ended && advance(state)) moved = true;
      ended &= state.ended;
    }
  }
  if (!ended) reportDeadlock();
  checkReturns();
  return ended;
}

/// One wait, one step, or the way to the next execution; whether there was something to do.
bool SymbolicRun::advance(LaneState& state) {
  const Plan& plan = planOf(state.execution);
  const auto& lanes = plan.programs[state.id.rank];
  const bool exists = state.id.lane < static_cast<int>(lanes.size());
  if (!exists || state.step == lanes[state.id.lane].size()) return arriveAtEnd(state);
  const Step& step = stepOf(state);
  const int lane = clocks_->laneNumber(state.id);
  while (state.waits < step.waits.size()) {
    Wait wait = step.waits[state.waits];
    wait.channel = channelOf(state.execution, wait.channel);
    if (!clocks_->arrived(wait)) return false;
    clocks_->wait(wait, lane);
    ++state.waits;
  }
  execute(state, step);
  ++state.step;
  state.waits = 0;
  return true;
}

/// A lane goes on to the next execution of its plan at once; to another plan when all lanes of the
/// rank have come here, as they do when a call returns.
bool SymbolicRun::arriveAtEnd(LaneState& state) {
  const size_t e = state.execution;
  auto& ended = ends_[e][state.id.rank];
  const int first = firstLane_[state.id.rank];
  const int count = firstLane_[state.id.rank + 1] - first;
  if (ended.empty()) ended.resize(count);
  if (ended[state.id.lane].empty()) ended[state.id.lane] = clocks_->clock(first + state.id.lane);
  const bool last = e + 1 == executions_.size();
  if (!last && executions_[e] != executions_[e + 1]) {
    const auto waits = [](const Clocks::Clock& clock) { return clock.empty(); };
    if (std::any_of(ended.begin(), ended.end(), waits)) return false;
    std::vector<int> lanes;
    for (int l = 0; l < count; ++l) lanes.push_back(first + l);
    clocks_->join(lanes);
    for (int l = 0; l < count; ++l) {
      lanes_[first + l].execution = e + 1;
      lanes_[first + l].step = 0;
      begins_[e + 1][first + l] = static_cast<uint32_t>(lanes_[first + l].history.size());
    }
    return true;
  }
  state.ended = last;
  if (!last) {
    ++state.execution;
    state.step = 0;
    begins_[state.execution][first + state.id.lane] = static_cast<uint32_t>(state.history.size());
  }
  return true;
}

void SymbolicRun::execute(LaneState& state, const Step& step) {
  const int lane = clocks_->laneNumber(state.id);
  const uint32_t event = clocks_->beginStep(lane);
  state.history.emplace_back(static_cast<int>(state.execution), static_cast<int>(state.step));
  if (step.moves()) move(state, step, event);
  for (const int signal : step.signals) {
    clocks_->signal(channelOf(state.execution, signal), lane);
  }
}

void SymbolicRun::move(LaneState& state, const Step& step, uint32_t event) {
  const Access local{clocks_->laneNumber(state.id), event, -1};
  std::vector<Symbols::Id> parts(step.from.size());
  bool any = false, all = true;
  for (int i = 0; i < step.count; ++i) {
    Moment maker;
    for (size_t s = 0; s < step.from.size(); ++s) {
      const Value read = this->read(state, step, step.from[s], i, local);
      parts[s] = read.id;
      maker = read.maker;
    }
    if (parts.size() > 1) maker = momentOf(state);
    const bool lacking = std::count(parts.begin(), parts.end(), Symbols::kNothing) > 0;
    const Value value{lacking ? Symbols::kNothing : symbols.reduction(parts), maker};
    if (parts.size() > 1) {
      noteFinal(state, step, value.id, any, all);
      noteOrder(state, parts);
    }
    for (const Place& place : step.to) {
      Access access = local;
      if (place.rank != state.id.rank && !step.store) access.putTo = place.rank;
      write(state, step, place, i, value, access);
    }
  }
  if (state.execution == 0 && parts.size() > 1) {
    if (any != all) properties.separateFinals = false;
    properties.finals[state.id.rank][state.id.lane][state.step] = all;
  }
}

/// Whether the reduction has become that of all ranks.
void SymbolicRun::noteFinal(const LaneState& state, const Step&, Symbols::Id value, bool& any,
                            bool& all) {
  if (state.execution != 0) return;
  const bool final = static_cast<int>(symbols.leavesOf(value).size()) == ranks_;
  any |= final;
  all &= final;
}

/// The same for all chunks of the step, else as it is written.
void SymbolicRun::noteOrder(const LaneState& state, const std::vector<Symbols::Id>& parts) {
  if (state.execution != 0) return;
  std::vector<int> ranks, order(parts.size());
  for (const Symbols::Id part : parts) {
    const auto& leaves = symbols.leavesOf(part);
    int lowest = leaves.empty() ? 0 : INT_MAX;
    for (const Symbols::Id leaf : leaves) lowest = std::min(lowest, symbols.leaf(leaf).rank);
    ranks.push_back(lowest);
  }
  std::iota(order.begin(), order.end(), 0);
  const std::vector<int> asWritten = order;
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return std::pair(ranks[a], a) < std::pair(ranks[b], b); });
  const auto [at, isNew] = rankOrder.try_emplace({state.id, static_cast<int>(state.step)}, order);
  if (!isNew && at->second != order) at->second = asWritten;
}

SymbolicRun::Value SymbolicRun::read(LaneState& state, const Step& step, const Place& place,
                                     int offset, const Access& access) {
  Cell& c = cell(static_cast<int>(state.execution), place, offset);
  const Clocks::Clock& clock = clocks_->clock(access.lane);
  const int part = (step.part + offset) % planOf(state.execution).chunks;
  if (!clocks_->isBefore(c.write, access.lane, clock, -1)) {
    reportRace(state, "reads", place, offset, c.write, "write");
  } else if (c.value == Symbols::kNothing) {
    reportRead(state, Finding::Kind::Uninitialized, place, offset,
               ", which nobody has written before", c);
  } else if (c.part != part) {
    reportRead(state, Finding::Kind::Shape, place, offset,
               " as part " + std::to_string(part) + " of a block, but part " +
                   std::to_string(c.part) + " was written there; parts may differ in size",
               c);
  } else if (place.buffer == Buffer::Scratch && c.packet != step.packet) {
    reportRead(
        state, Finding::Kind::Packet, place, offset,
        c.packet ? " as raw data, but it holds packets" : " as packets, but it holds raw data", c);
  }
  checkOthersScratch(state, place, access);
  noteRemoteUse(state, place, access);
  c.reads.push_back(access);
  return {c.value, c.maker};
}

void SymbolicRun::write(LaneState& state, const Step& step, const Place& place, int offset,
                        const Value& value, const Access& access) {
  Cell& c = cell(static_cast<int>(state.execution), place, offset);
  const Clocks::Clock& clock = clocks_->clock(access.lane);
  if (!clocks_->isBefore(c.write, access.lane, clock, access.putTo)) {
    reportRace(state, "writes", place, offset, c.write, "write");
  }
  for (const Access& other : c.reads) {
    if (clocks_->isBefore(other, access.lane, clock, access.putTo)) continue;
    reportRace(state, "writes", place, offset, other, "read");
    break;
  }
  checkOthersScratch(state, place, access);
  noteRemoteUse(state, place, access);
  c.reads.clear();
  c.write = access;
  c.writer = momentOf(state);
  c.maker = value.maker;
  c.value = value.id;
  c.part = (step.part + offset) % planOf(state.execution).chunks;
  c.packet = step.packet && place.buffer == Buffer::Scratch;
}

/// Between plans, of which one does not know where the other has its chunks, every two accesses to
/// the scratch of a rank have to be ordered.
void SymbolicRun::checkOthersScratch(LaneState& state, const Place& place, const Access& access) {
  if (place.buffer != Buffer::Scratch || uses_.size() < 2) return;
  const int plan = scratchOf_[state.execution];
  for (int other = 0; other < plan; ++other) {
    for (const Access& use : uses_[other][place.rank]) {
      if (clocks_->isBefore(use, access.lane, clocks_->clock(access.lane), access.putTo)) continue;
      reportRace(state, "uses", place, 0, use, "use of that scratch");
      return;
    }
  }
  uses_[plan][place.rank].push_back(access);
}

/// A rank's buffers are its caller's until that rank has begun, and again when its lanes have
/// ended.
void SymbolicRun::noteRemoteUse(LaneState& state, const Place& place, const Access& access) {
  if (place.buffer == Buffer::Scratch || place.rank == state.id.rank) return;
  if (!hasBegun(static_cast<int>(state.execution), place.rank, clocks_->clock(access.lane))) {
    if (Finding* finding = report(Finding::Kind::Race, state,
                                  stepText(state) + " uses " + placeText(place, 0) +
                                      ", which may not have begun by then")) {
      finding->place = place;
      finding->words = {"begun"};
    }
  }
  remoteUses_.push_back({access, place, place.rank, static_cast<int>(state.execution), state.id,
                         static_cast<int>(state.step)});
}

bool SymbolicRun::hasBegun(int execution, int rank, const Clocks::Clock& clock) const {
  for (int lane = firstLane_[rank]; lane < firstLane_[rank + 1]; ++lane) {
    const uint32_t before = begins_[execution][lane];
    if (before != kNotYet && clock[lane] > before) return true;
  }
  return false;
}

void SymbolicRun::checkReturns() {
  for (const RemoteUse& use : remoteUses_) {
    const auto& ends = ends_[use.execution][use.rank];
    bool before = false;
    for (const auto& clock : ends) {
      before |= !clock.empty() && clocks_->isBefore(use.access, -1, clock, -1);
    }
    if (before || ends.empty()) continue;
    if (findings.size() >= kMaxFindings) return;
    Finding finding{Finding::Kind::Race,
                    use.lane,
                    use.step,
                    toText(use.lane, use.step) + " uses a buffer of rank " +
                        std::to_string(use.rank) +
                        ", which may have returned to its caller by then",
                    {}};
    finding.execution = use.execution;
    finding.place = use.place;
    finding.words = {"returned"};
    if (!ends[0].empty()) setRun(finding, ends[0]);
    findings.push_back(std::move(finding));
  }
}

void SymbolicRun::reportDeadlock() {
  const auto stuck = [](const LaneState& state) { return !state.ended; };
  const auto first = std::find_if(lanes_.begin(), lanes_.end(), stuck);
  // From whom it waits for to whom that one waits for, until one ends or comes again.
  std::vector<const LaneState*> path;
  const LaneState* at = &*first;
  std::string end;
  bool cyclic = false;
  while (true) {
    const auto seen = std::find(path.begin(), path.end(), at);
    if (seen != path.end()) {
      path.erase(path.begin(), seen);
      end = "and so they wait for each other";
      cyclic = true;
      break;
    }
    const auto& lanes = planOf(at->execution).programs[at->id.rank];
    if (at->ended || at->id.lane >= static_cast<int>(lanes.size()) ||
        at->step == lanes[at->id.lane].size()) {
      end = "rank " + std::to_string(at->id.rank) + ", lane " + std::to_string(at->id.lane) +
            " has ended";
      break;
    }
    path.push_back(at);
    const Channel& channel = planOf(at->execution).channels[stepOf(*at).waits[at->waits].channel];
    at = &lanes_[clocks_->laneNumber(channel.from)];
  }
  std::string message;
  for (const LaneState* state : path) {
    const int index = stepOf(*state).waits[state->waits].channel;
    const LaneId from = planOf(state->execution).channels[index].from;
    message += (message.empty() ? "" : "; ") + stepText(*state) + " waits for c" +
               std::to_string(index) + " from rank " + std::to_string(from.rank) + ", lane " +
               std::to_string(from.lane);
  }
  const LaneState& state = path.empty() ? *first : *path[0];
  Finding finding{
      Finding::Kind::Deadlock, state.id, static_cast<int>(state.step), message + "; " + end, {}};
  finding.execution = static_cast<int>(state.execution);
  for (const LaneState* stuck : path) finding.others.push_back(momentOf(*stuck));
  finding.words = {cyclic ? "each other" : "ended"};
  setRun(finding, clocks_->clock(clocks_->laneNumber(state.id)));
  findings.insert(findings.begin(), std::move(finding));
}

std::string SymbolicRun::stepText(const LaneState& state) const {
  std::string text = toText(state.id, static_cast<int>(state.step));
  if (state.execution > 0) text += " of execution " + std::to_string(state.execution);
  return text;
}

std::string SymbolicRun::eventText(const Access& access) const {
  const LaneState& lane = lanes_[access.lane];
  const auto [execution, step] = lane.history[access.event - 1];
  std::string text = toText(lane.id, step);
  if (execution > 0) text += " of execution " + std::to_string(execution);
  return text + " (" +
         toText(planOf(execution), planOf(execution).lane(lane.id)[step], lane.id.rank) + ")";
}

Moment SymbolicRun::momentOf(const LaneState& state) const {
  return {state.id, static_cast<int>(state.step), static_cast<int>(state.execution)};
}

Moment SymbolicRun::momentOf(const Access& access) const {
  if (access.lane < 0) return {};
  const auto [execution, step] = lanes_[access.lane].history[access.event - 1];
  return {lanes_[access.lane].id, step, execution};
}

/// What has to have happened.
void SymbolicRun::setRun(Finding& finding, const Clocks::Clock& clock) const {
  for (size_t i = 0; i < clock.size(); ++i) {
    if (clock[i] == 0) continue;
    finding.trace.push_back("rank " + std::to_string(lanes_[i].id.rank) + ", lane " +
                            std::to_string(lanes_[i].id.lane) + ": " + std::to_string(clock[i]) +
                            (clock[i] == 1 ? " step" : " steps"));
    finding.run.push_back(momentOf(Access{static_cast<int>(i), clock[i], -1}));
  }
}

/// Null if there have been enough.
Finding* SymbolicRun::report(Finding::Kind kind, const LaneState& state,
                             const std::string& message) {
  if (findings.size() >= kMaxFindings) return nullptr;
  Finding finding{kind, state.id, static_cast<int>(state.step), message, {}};
  finding.execution = static_cast<int>(state.execution);
  setRun(finding, clocks_->clock(clocks_->laneNumber(state.id)));
  findings.push_back(std::move(finding));
  return &findings.back();
}

void SymbolicRun::reportRead(const LaneState& state, Finding::Kind kind, const Place& place,
                             int offset, const std::string& what, const Cell& cell) {
  Finding* finding =
      report(kind, state, stepText(state) + " reads " + placeText(place, offset) + what);
  if (finding == nullptr) return;
  finding->place = Place{place.rank, place.buffer, place.index + offset};
  finding->words = {what};
  if (cell.write.lane >= 0) finding->others.push_back(cell.writer);
}

void SymbolicRun::reportRace(const LaneState& state, const char* does, const Place& place,
                             int offset, const Access& other, const char* did) {
  Finding* finding = report(Finding::Kind::Race, state,
                            stepText(state) + " (" +
                                toText(planOf(state.execution), stepOf(state), state.id.rank) +
                                ") " + does + " " + placeText(place, offset) +
                                "; nothing orders it with the " + did + " of " + eventText(other));
  if (finding == nullptr) return;
  finding->place = Place{place.rank, place.buffer, place.index + offset};
  finding->others.push_back(momentOf(other));
  finding->words = {does, did};
}

}  // namespace ctran::plan
