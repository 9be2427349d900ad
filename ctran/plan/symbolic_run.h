#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ctran/plan/clocks.h"
#include "ctran/plan/plan.h"
#include "ctran/plan/symbols.h"
#include "ctran/plan/verify.h"

namespace ctran::plan {

/// One run of plans, executed one after another, on remembered instead of real data: it finds what
/// is wrong on the way, and leaves the outputs for a look.
class SymbolicRun {
 public:
  /// `inPlace`: input and output are the same memory, block by block.
  SymbolicRun(std::vector<const Plan*> executions, bool inPlace);

  /// Whether it came to the end.
  bool run();

  /// What a buffer of the caller holds, who wrote it last, and whose input or reduction it is.
  Symbols::Id value(int execution, const Place& place, int offset = 0);
  Moment writer(int execution, const Place& place);
  Moment maker(int execution, const Place& place);

  Symbols symbols;
  std::vector<Finding> findings;
  Properties properties;  ///< `separateFinals` and `finals`, of the first plan
  /// Of each step that reduces, of the first execution: its sources by the lowest rank in each.
  std::map<std::pair<LaneId, int>, std::vector<int>> rankOrder;

 private:
  static constexpr size_t kMaxFindings = 20;
  static constexpr double kMaxCells = 1 << 24;  // about 2 GB
  static constexpr uint32_t kNotYet = UINT32_MAX;

  struct Cell {
    Symbols::Id value = Symbols::kNothing;
    int part = 0;
    bool packet = false;
    Access write;
    Moment writer;
    Moment maker;  // of the value: who reduced it; none for an input
    std::vector<Access> reads;
  };
  struct Value {
    Symbols::Id id;
    Moment maker;
  };
  struct LaneState {
    LaneId id;
    size_t execution = 0;
    size_t step = 0;
    size_t waits = 0;  // of the step that are over
    bool ended = false;
    std::vector<std::pair<int, int>> history;  // (execution, step) of each event
  };
  struct RemoteUse {  // of a user's buffer
    Access access;
    Place place;
    int rank, execution;
    LaneId lane;
    int step;
  };

  void number();
  bool advance(LaneState& state);
  bool arriveAtEnd(LaneState& state);
  void execute(LaneState& state, const Step& step);
  void move(LaneState& state, const Step& step, uint32_t event);
  Value read(LaneState& state, const Step& step, const Place& place, int offset,
             const Access& access);
  void write(LaneState& state, const Step& step, const Place& place, int offset, const Value& value,
             const Access& access);
  void noteFinal(const LaneState& state, const Step& step, Symbols::Id value, bool& any, bool& all);
  void noteOrder(const LaneState& state, const std::vector<Symbols::Id>& parts);
  Cell& cell(int execution, const Place& place, int offset);
  void checkOthersScratch(LaneState& state, const Place& place, const Access& access);
  void noteRemoteUse(LaneState& state, const Place& place, const Access& access);
  bool hasBegun(int execution, int rank, const Clocks::Clock& clock) const;
  void checkReturns();
  void reportDeadlock();
  Finding* report(Finding::Kind kind, const LaneState& state, const std::string& message);
  void reportRead(const LaneState& state, Finding::Kind kind, const Place& place, int offset,
                  const std::string& what, const Cell& cell);
  void reportRace(const LaneState& state, const char* does, const Place& place, int offset,
                  const Access& other, const char* did);
  void setRun(Finding& finding, const Clocks::Clock& clock) const;
  Moment momentOf(const LaneState& state) const;
  Moment momentOf(const Access& access) const;
  std::string eventText(const Access& access) const;
  std::string stepText(const LaneState& state) const;

  const Plan& planOf(size_t execution) const { return *executions_[execution]; }
  const Step& stepOf(const LaneState& state) const {
    return planOf(state.execution).lane(state.id)[state.step];
  }
  int channelOf(size_t execution, int channel) const { return firstChannel_[execution] + channel; }

  std::vector<const Plan*> executions_;
  bool inPlace_;
  int ranks_;
  std::vector<int> firstLane_;     // per rank
  std::vector<int> firstChannel_;  // per execution; the same for executions of one plan
  std::vector<int> depthIndex_;    // per execution: copy of scratch
  std::vector<std::vector<std::vector<Cell>>> scratch_;  // [plan][rank][copy and chunk]
  std::vector<int> scratchOf_;                           // per execution: index in scratch_
  std::vector<std::vector<std::vector<Cell>>> user_;     // [execution][rank][input, then output]
  std::vector<std::vector<std::vector<Access>>> uses_;   // [plan][rank]: of scratch, if there are
                                                         // several plans
  std::vector<LaneState> lanes_;
  std::optional<Clocks> clocks_;
  std::vector<RemoteUse> remoteUses_;
  std::vector<std::vector<std::vector<Clocks::Clock>>> ends_;  // [execution][rank]: of its lanes
  std::vector<std::vector<uint32_t>> begins_;  // [execution][lane]: its events before; kNotYet
};

}  // namespace ctran::plan
