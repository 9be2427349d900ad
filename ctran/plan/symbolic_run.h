#pragma once

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

  /// What a buffer of the caller holds, and who wrote it last.
  Symbols::Id value(int execution, const Place& place, int offset = 0);
  std::string writer(int execution, const Place& place);

  Symbols symbols;
  std::vector<Finding> findings;
  Properties properties;  ///< `separateFinals` and `finals`, of the first plan

 private:
  static constexpr size_t kMaxFindings = 20;

  struct Cell {
    Symbols::Id value = Symbols::kNothing;
    int part = 0;
    bool packet = false;
    Access write;
    int writeStep = 0, writeExecution = 0;
    std::vector<Access> reads;
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
    int rank, execution;
    LaneId lane;
    int step;
  };

  void number();
  bool advance(LaneState& state);
  bool arriveAtEnd(LaneState& state);
  void execute(LaneState& state, const Step& step);
  void move(LaneState& state, const Step& step, uint32_t event);
  Symbols::Id read(LaneState& state, const Step& step, const Place& place, int offset,
                   const Access& access);
  void write(LaneState& state, const Step& step, const Place& place, int offset, Symbols::Id value,
             const Access& access);
  void noteFinal(const LaneState& state, const Step& step, Symbols::Id value, bool& any, bool& all);
  Cell& cell(int execution, const Place& place, int offset);
  void checkOthersScratch(LaneState& state, const Place& place, const Access& access);
  void noteRemoteUse(const LaneState& state, const Place& place, const Access& access);
  void checkReturns();
  void reportDeadlock();
  void report(Finding::Kind kind, const LaneState& state, const std::string& message);
  void reportRace(const LaneState& state, const char* does, const Place& place, int offset,
                  const Access& other, const char* did);
  std::string eventText(const Access& access) const;
  std::string stepText(const LaneState& state) const;
  std::vector<std::string> traceOf(const Clocks::Clock& clock) const;

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
};

}  // namespace ctran::plan
