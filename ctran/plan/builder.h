#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ctran/plan/plan.h"

namespace ctran::plan {

class Builder;

/// A way from one lane to another through slots of the receiver's scratch: messages arrive in the
/// order in which they were put, and a slot is written again only when the receiver has released
/// it. Plans that reach other ranks through links alone cannot race, in one execution or several.
///
/// A message is one or more chunks, all messages of a link alike. How many slots there are is
/// settled in the end: the messages of an execution are spread over them evenly.
class Link {
 public:
  Link(Builder& builder, LaneId from, LaneId to, int chunks);

  /// The move of the sender's step goes into the next slot, once that is free, and is announced.
  void put(Step& step);
  /// The receiver's step waits for the next message; returns where it is.
  Place arrive(Step& step);
  /// After the receiver's step the slot may be written again.
  void release(Step& step) const;

 private:
  friend class Builder;
  struct Use {
    LaneId lane;
    size_t step;
    bool inTo;     // which of the step's lists
    size_t place;  // index in it
    int message;
  };
  void note(const Step& step, bool inTo, int message);
  void settle();

  Builder& builder_;
  LaneId from_, to_;
  int chunks_;
  int data_, credit_;  // channels
  int sent_ = 0, received_ = 0;
  std::vector<Use> uses_;
};

/// Where one lane shows data to others, who read it there: written once, however many read. A
/// notice is written again only when all readers have released what was there; so buffers cannot
/// race.
class SharedBuffer {
 public:
  SharedBuffer(Builder& builder, LaneId owner, std::vector<LaneId> readers, int chunks);

  /// The owner's step writes chunks of the buffer; the first such step of an execution waits until
  /// they are free.
  void write(Step& step, int offset = 0);
  /// After the owner's step all that was written is there for the readers.
  void publish(Step& step) const;
  /// The reader's step reads chunks of the buffer, waiting for them if it is the first to.
  Place read(Step& step, LaneId reader, int offset = 0);
  /// After the reader's step it has no more use for them.
  void release(Step& step, LaneId reader) const;

 private:
  LaneId owner_;
  std::vector<LaneId> readers_;
  Place place_;
  std::vector<int> data_, credit_;  // channels, per reader
  bool written_ = false;
  std::vector<bool> read_;  // per reader
  size_t indexOf(LaneId reader) const;
};

/// Makes a plan. Steps are added lane by lane, in the order in which they run:
///
///     Builder b("mine", CollectiveKind::AllReduce, ranks, chunks);
///     Step& step = b.step({rank, 0});
///     b.move(step, {b.output(rank, 3)}, {b.input(rank, 3)});
class Builder {
 public:
  Builder(std::string name, CollectiveKind kind, int ranks, int chunks);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  const Plan& plan() const { return plan_; }
  int ranks() const { return plan_.ranks; }
  int chunks() const { return plan_.chunks; }

  /// A new last step of the lane. Valid until the next one is asked for on the same lane.
  Step& step(LaneId lane);

  /// What the plan reads: the input; the output if it is in place.
  Place input(int rank, int index) const {
    return {rank, plan_.inPlace ? Buffer::Output : Buffer::Input, index};
  }
  static Place output(int rank, int index) { return {rank, Buffer::Output, index}; }
  static Place scratch(int rank, int index) { return {rank, Buffer::Scratch, index}; }

  /// Sets what a step moves. The part is that of a user's buffer among the places, unless given.
  void move(Step& step, std::vector<Place> to, std::vector<Place> from, int count = 1,
            int part = -1) const;
  /// A step that does nothing else; nothing at all if source and destination are the same place.
  void copy(LaneId lane, const Place& to, const Place& from, int count = 1, int part = -1);

  /// The channel between the lanes; one for each `use`.
  int channel(LaneId from, LaneId to, int credits = 0, int use = 0);
  /// The link between the lanes; one for each `use`.
  Link& link(LaneId from, LaneId to, int chunks = 1, int use = 0);

  /// A shared buffer of so many chunks. `depth` has to have been set.
  SharedBuffer& sharedBuffer(LaneId owner, std::vector<LaneId> readers, int chunks);

  /// All lanes of a rank wait for each other.
  void barrier(int rank);

  /// Scratch that nobody else is given.
  Place allocate(int rank, int chunks);

  void setRoot(int root) { plan_.root = root; }
  void setInPlace() { plan_.inPlace = true; }
  /// Of scratch; links with a slot for each message may then run ahead by so many executions.
  void setDepth(int depth) { plan_.depth = depth; }

  /// The plan, checked. Throws Error(InvalidArgument).
  Plan finish();

 private:
  friend class Link;
  friend class SharedBuffer;
  struct Key {
    LaneId from, to;
    int use;
    auto operator<=>(const Key&) const = default;
  };

  Plan plan_;
  std::vector<int> used_;  // chunks of scratch, per rank
  std::map<Key, int> channels_;
  std::map<Key, std::unique_ptr<Link>> links_;
  std::vector<Link*> linkOrder_;
  std::vector<std::unique_ptr<SharedBuffer>> sharedBuffers_;
};

}  // namespace ctran::plan
