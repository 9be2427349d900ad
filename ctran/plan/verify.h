#pragma once

#include <climits>
#include <optional>
#include <string>
#include <vector>

#include "ctran/plan/plan.h"
#include "ctran/plan/symbols.h"

/// Proofs about plans. Every channel has one producer and one consumer and nobody asks whether a
/// signal is there without waiting for it, so what a plan does depends on no timing: one run
/// through it, with clocks that say what is ordered with what, tells about all runs.
namespace ctran::plan {

/// A step of a lane in one of several executions in a row.
struct Moment {
  LaneId lane;
  int step = -1;  ///< -1: none
  int execution = 0;

  bool operator==(const Moment&) const = default;
};

struct Finding {
  enum class Kind {  // the most telling first
    Limit,           ///< more than an executor has
    Unmatched,       ///< a channel is signalled more or less often than waited on
    Deadlock,        ///< lanes wait for each other, or for what never comes
    Race,            ///< two accesses to the same memory, one a write, that nothing orders
    Uninitialized,   ///< memory is read that nobody has written
    Shape,           ///< a chunk is read as another part of a block than was written: sizes differ
    Packet,          ///< packets are read as raw data, or raw data as packets
    WrongResult,     ///< the output is not what the collective promises
    Bits,            ///< ranks reduce in different orders: their results differ in the last bits
    ModifiedInput,   ///< the input is not what it was
  };
  Kind kind;
  LaneId lane;    ///< where it shows
  int step = -1;  ///< -1: at the end
  std::string message;
  /// The shortest run that shows it: the steps that have to have happened, as "rank 0, lane 0: 3
  /// steps" per lane that takes part.
  std::vector<std::string> trace;

  // The same as data, for those who have other names for lanes and steps.
  int execution = 0;
  std::optional<Place> place = {};  ///< the chunk that it is about
  /// What else it is about: the access that races; who wrote a wrong result, and who made it; who
  /// waits for whom; the signal or wait that is too many.
  std::vector<Moment> others = {};
  /// Of a race, what the two do ("reads", "write"), or "begun" or "returned": what nothing orders
  /// the access to a caller's buffer with. Of a deadlock, "each other", or "ended" if the last one
  /// waits for a lane that has. Of a read, what is wrong with it.
  std::vector<std::string> words = {};
  std::vector<Symbols::Leaf> lacking = {}, surplus = {};  ///< inputs in a wrong result
  std::vector<Moment> run = {};                           ///< the last step of each lane of `trace`
};

std::string_view nameOf(Finding::Kind kind);

/// What an executor offers.
struct Limits {
  int scratch = INT_MAX;   ///< chunks per rank, all copies
  int channels = INT_MAX;  ///< that start at one rank
  int lanes = INT_MAX;     ///< per rank
  int steps = INT_MAX;     ///< per lane
  bool remoteRead = true;
  bool remoteOutput = true;
  bool packets = true;
};

/// What is known about a plan that has no findings.
struct Properties {
  bool inPlaceSafe = false;  ///< works where input and output are the same memory, block by block
  bool rankOrder = false;    ///< sums are left to right in the order of the ranks
  bool flat = false;         ///< each sum is made in one go: no rounding in between
  /// Whether steps make complete sums of all ranks, or incomplete ones, but none both: then an
  /// average can be divided where the sum is completed.
  bool separateFinals = false;
  /// [rank][lane][step]: its reduction completes the sum.
  std::vector<std::vector<std::vector<bool>>> finals;
};

struct Report {
  std::vector<Finding> findings;  ///< most telling first; at most about twenty
  Properties properties;
  bool ok() const { return findings.empty(); }
  std::string toText() const;
};

/// Verifies the plan for any count of elements, executed any number of times in a row. Throws
/// Error(InvalidArgument) if it is not well-formed.
Report verify(const Plan& plan, const Limits& limits = {});

/// Whether `second` may start on a rank as soon as `first` has ended on that rank, with the same
/// scratch and whatever layout of it. Both have to be correct by themselves.
Report verifyAfter(const Plan& first, const Plan& second);

}  // namespace ctran::plan
