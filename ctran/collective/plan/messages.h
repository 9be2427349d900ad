#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <vector>

#include "ctran/collective/net_context.h"
#include "ctran/collective/plan/algorithm.h"
#include "ctran/collective/plan/memory.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// The messages between this rank of a plan and the ranks of other hosts while the plan is
/// executed.
///
/// Every rank has the whole plan, so both ends of a message know of it beforehand. A step of lane l
/// of rank A sends to rank B, in this order:
///
///   - a request, if it reads scratch of B; B answers with the data, piece by piece;
///   - what it puts into scratch of B, piece by piece; B receives it in place, because the sender
///     has waited for whatever was there before;
///   - a byte, if it signals B and no piece can carry the signal: there is no piece, or the step
///     also puts into scratch of other ranks on other hosts, and signals when all of that has left.
///
/// B counts the signals of a step when all of its messages are there. Messages are numbered by lane
/// and direction. A lane waits for few of them, because each of its steps ends before the next.
class PlanMessages {
 public:
  PlanMessages(NetContext& net, const HostMap& map, const PlanAlgorithm& algorithm,
               const PlanMemory& memory);

  /// Returns whether messages can run the plan: there have to be enough numbers for the messages of
  /// a call. It is the same on all ranks.
  static bool canDo(const PlanAlgorithm& algorithm, uint64_t units);

  // --- Steps of this rank -----------------------------------------------------------------------

  /// Returns whether a step concerns other hosts.
  bool concerns(int lane, size_t step) const { return !own_[lane][step].empty(); }
  /// Begins the step: asks for what it reads from there.
  void ask(int lane, size_t step, uint64_t unit);
  /// Returns whether the answers have come; if not, `waiting` is what they wait for.
  bool hasAnswers(int lane, Condition& waiting);
  /// Returns what has come for `from[source]`, chunk `offset`.
  const std::byte* answer(int lane, int offset, size_t source) const {
    return laneOf_[lane].answers.at({offset, source});
  }
  /// Returns room for a result that is only to be sent.
  std::byte* staging(int lane, size_t bytes);
  /// Puts a chunk of the step into the scratch of a rank on another host.
  void put(int lane, int rank, const std::byte* data, size_t bytes);
  /// Is called when all of the step has been put.
  void endPuts(int lane, size_t step, uint64_t unit);
  /// Returns whether all puts have left; if not, `waiting` is what they wait for.
  bool hasLeft(int lane, Condition& waiting);
  /// Ends the step: signals the ranks that were not told with the data.
  void endStep(int lane, size_t step, uint64_t unit);

  // --- Signals of other hosts, and of this rank to itself where there is no arena ---------------

  std::atomic<uint64_t>& signal(int channel) { return signals_[channel]; }
  Condition signalled(int channel, uint64_t number);

  // --- What others do ---------------------------------------------------------------------------

  /// Receives and answers as far as possible. Returns whether something happened.
  bool advance();
  /// Adds what `advance` waits for.
  void addConditions(std::vector<Condition>& conditions) const;
  bool ended() const { return loose_.empty() && live_ == 0; }

 private:
  /// What a step exchanges with one rank of another host.
  struct Traffic {
    int rank;     ///< the other rank
    size_t step;  ///< index in its lane
    const plan::Step* does;
    const PlanAlgorithm::Step* prepared;
    std::vector<size_t> gets, puts;  ///< indices in from and to
    std::vector<PlanAlgorithm::Signal> signals;
    bool alone = true;  ///< it puts into the scratch of no other rank of another host
  };
  /// The state of a lane of this rank.
  struct LaneState {
    std::vector<uint32_t> sent, asked;  // per rank: numbers of the next messages
    // Memory of the messages below. They are destroyed before it.
    std::deque<std::vector<std::byte>> memory;
    std::deque<Arrival> arriving;
    std::deque<Dispatch> leaving;
    std::map<std::pair<int, size_t>, const std::byte*> answers;
  };
  /// A message that a lane on another host sends to this rank.
  struct Expected {
    Arrival arrival;
    const Traffic* asks = nullptr;     ///< it is the request of this
    const Traffic* signals = nullptr;  ///< it is the last message of this
    uint64_t unit = 0;
  };
  /// All messages that one such lane sends to this rank.
  struct Stream {
    plan::LaneId lane;
    std::vector<Traffic> steps;
    uint64_t unit = 0;  // the unit that is expected next
    size_t next = 0;
    uint32_t received = 0, answered = 0;
    std::deque<Expected> expected;
  };

  std::vector<Traffic> trafficOf(plan::LaneId lane, size_t step) const;
  bool isNear(int a, int b) const {
    return map_.hostOf(memory_.real(a)) == map_.hostOf(memory_.real(b));
  }
  bool hasPieces(const Traffic& traffic, const std::vector<size_t>& places, uint64_t unit) const;
  bool hasByte(const Traffic& traffic, uint64_t unit) const {
    return !traffic.signals.empty() && (!traffic.alone || !hasPieces(traffic, traffic.puts, unit));
  }
  void expectMore(Stream& stream);
  void expect(Stream& stream, const Traffic& traffic, uint64_t unit);
  void answer(Stream& stream, const Traffic& traffic, uint64_t unit);
  void sendByte(int lane, int rank);

  NetContext& net_;
  const HostMap& map_;
  const PlanAlgorithm& algorithm_;
  const PlanMemory& memory_;
  std::byte ignored_{};                                 // bytes without a meaning go here
  std::vector<std::vector<std::vector<Traffic>>> own_;  // [lane][step]
  std::deque<LaneState> laneOf_;
  std::deque<Stream> streams_;
  size_t live_ = 0;  // streams that have not ended
  std::vector<Dispatch> loose_;
  std::vector<std::atomic<uint64_t>> signals_;  // per channel
};

}  // namespace ctran
