#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/base/collective_kind.h"
#include "ctran/base/error.h"
#include "ctran/base/json.h"

/// Collectives as data: who moves what when. See docs/plans.md.
namespace ctran::plan {

/// Input and Output belong to the caller: blocks of the collective, each divided into
/// `Plan::chunks` parts, so that chunk i is part i % chunks of block i / chunks. Parts of one block
/// differ in size when the count does not divide, part k of any block is as large as part k of any
/// other. Scratch belongs to the plan; a chunk of it holds any part of a block.
enum class Buffer : uint8_t { Input, Output, Scratch };

std::string_view nameOf(Buffer buffer);

/// The chunks `index`, `index` + 1, ... of a buffer of a rank; how many, the step says.
struct Place {
  int rank = 0;
  Buffer buffer = Buffer::Input;
  int index = 0;

  bool operator==(const Place&) const = default;
};

/// What a lane waits for: that `count` more signals have come on a channel.
struct Wait {
  int channel = 0;
  int count = 1;

  bool operator==(const Wait&) const = default;
};

/// One step of a lane: it waits, then moves, then signals; any of these may be missing.
///
/// The move stores the reduction of `from`, in that order, in every place of `to`. It is a copy, a
/// put (to another rank), a get (from one), a reduce, or a reduce and put in one. When it has ended
/// its sources may be reused; what it put is seen by those of the other rank who have seen a later
/// signal of the same lane to that rank, as networks with remote writes have it.
///
/// A step that stores puts by itself, into memory that the ranks share: what it put is seen by all
/// who come after it in any way, as through a signal of another lane that had waited for it.
///
/// A packet step is one whose signals travel inside the data, and whose waits look for them there:
/// no separate flag, at twice the bytes.
struct Step {
  std::vector<Wait> waits;
  std::vector<Place> to;
  std::vector<Place> from;
  int part = 0;   ///< the parts of a block that are moved: this one ...
  int count = 1;  ///< ... and those after it, this many in all
  bool packet = false;
  bool store = false;
  std::vector<int> signals;

  bool moves() const { return !to.empty(); }
  bool operator==(const Step&) const = default;
};

/// "reduce_put": what a step of that rank is called.
std::string_view nameOf(const Step& step, int rank);

struct LaneId {
  int rank = 0;
  int lane = 0;

  auto operator<=>(const LaneId&) const = default;
};

/// A channel carries counting signals from one lane to another: one producer, one consumer.
struct Channel {
  LaneId from, to;
  int credits = 0;  ///< signals that are there before the first

  bool operator==(const Channel&) const = default;
};

/// Runs from first step to last.
using Lane = std::vector<Step>;

/// An algorithm for one collective over a fixed number of ranks and any count of elements.
///
/// A plan may be executed again at once, on the same or other data: a lane goes on to the next
/// execution without waiting for the other lanes. Pipelining is done that way: large data is cut
/// into units, which are executed one after another. In execution e, scratch means copy e % depth.
struct Plan {
  std::string name;
  CollectiveKind kind = CollectiveKind::AllReduce;
  int ranks = 1;
  int root = 0;          ///< of a broadcast
  int chunks = 1;        ///< parts of a block
  int scratch = 0;       ///< chunks of scratch per rank, in each copy
  int depth = 1;         ///< copies of scratch
  bool inPlace = false;  ///< there is no input; output holds it in the beginning
  /// Of a plan that promises no result: the blocks in each rank's input and output. It is called as
  /// an all_reduce of one block, and serves only calls that name it.
  struct Open {
    int inputs = 0;
    int outputs = 0;
    bool operator==(const Open&) const = default;
  };
  std::optional<Open> open;
  std::vector<Channel> channels;
  std::vector<std::vector<Lane>> programs;  ///< [rank][lane]

  bool operator==(const Plan&) const = default;

  const Lane& lane(LaneId id) const { return programs[id.rank][id.lane]; }
  Lane& lane(LaneId id) { return programs[id.rank][id.lane]; }

  /// Blocks in a user's buffer: one, or one per rank.
  int blocks(Buffer buffer) const;
  /// Chunks in a buffer (in one copy).
  int size(Buffer buffer) const {
    return buffer == Buffer::Scratch ? scratch : blocks(buffer) * chunks;
  }
  size_t stepCount() const;

  /// Of a plan that differs in nothing.
  uint64_t hash() const;
};

/// What an executor or transport must be able to do for a plan.
struct Needs {
  bool remoteRead = false;    ///< get
  bool remoteOutput = false;  ///< put into a user's output
  bool packets = false;
  bool sharedMemory = false;  ///< steps that store
  int scratch = 0;            ///< chunks, all copies
  int lanes = 0;              ///< of the rank that has the most
  int channels = 0;           ///< that start at one rank, of the rank that has the most
};
Needs needsOf(const Plan& plan);

/// Whether plans are made for collectives of that kind.
bool isPlannable(CollectiveKind kind);

/// A step is not well-formed.
class StepError : public Error {
 public:
  StepError(const std::string& message, std::string why, LaneId at, int step)
      : Error(ErrorKind::InvalidArgument, message), why(std::move(why)), at(at), step(step) {}

  const std::string why;  ///< without where
  const LaneId at;
  const int step;
};

/// Throws Error(InvalidArgument), naming rank, lane and step, if the plan is not even well-formed:
/// indices out of range, shapes that do not fit, channels used by others than their ends.
void check(const Plan& plan);

/// The same broadcast from another root: every rank takes the place of the one before it, or so.
Plan withRoot(const Plan& plan, int root);

/// For people: one line per step.
std::string toText(const Plan& plan);
std::string toText(const Plan& plan, const Step& step, int rank);
std::string toText(const LaneId& lane, int step);  ///< "rank 1, lane 0, step 3"

Json toJson(const Plan& plan);
/// Throws Error(InvalidArgument). The plan has been checked.
Plan fromJson(const Json& json);

}  // namespace ctran::plan
