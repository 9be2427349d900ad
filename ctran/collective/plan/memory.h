#pragma once

#include <algorithm>
#include <vector>

#include "ctran/collective/blocks.h"
#include "ctran/collective/collective.h"
#include "ctran/plan/plan.h"
#include "ctran/transport/shm/arena.h"

namespace ctran {

/// How the data of a call is divided: into blocks, blocks into parts, parts into units. Each
/// execution of the plan moves one unit.
class PlanLayout {
 public:
  PlanLayout(const plan::Plan& plan, size_t count, size_t element);
  /// Divides the data of a call that a plan serves.
  explicit PlanLayout(const Collective& c);

  uint64_t units() const { return units_; }
  size_t stride() const { return stride_; }                 ///< bytes of a chunk of scratch
  size_t scratchBytes() const { return slots_ * stride_; }  ///< bytes of one rank

  /// Return the number of elements of the unit that belong to the part, and their offset in the
  /// block.
  size_t count(int part, uint64_t unit) const {
    return std::min(unit_, parts_.size(part) - std::min(parts_.size(part), unit * unit_));
  }
  size_t offsetBytes(int part, uint64_t unit) const {
    return (parts_.begin(part) + unit * unit_) * element_;
  }

 private:
  Partition parts_;
  size_t element_;
  size_t slots_;  // chunks of scratch, all copies
  size_t stride_, unit_;
  uint64_t units_;
};

/// Where the chunks of a plan are in one call, as one rank sees it. In a broadcast from another
/// root than the plan's, ranks have other numbers in the plan; numbers are those of the plan unless
/// said otherwise.
class PlanMemory {
 public:
  static constexpr size_t kScratchBytes = Arena::kRingBytes;  ///< bytes of one rank

  /// `c.plan` runs the call. `scratch` has an address per rank of the communicator; null if it is
  /// not mapped here.
  PlanMemory(const Collective& c, const PlanLayout& layout, int rank,
             std::vector<std::byte*> scratch);

  const plan::Plan& plan() const { return plan_; }
  const PlanLayout& layout() const { return layout_; }
  size_t element() const { return element_; }
  int self() const { return planned(rank_); }
  int size() const { return static_cast<int>(scratch_.size()); }

  /// Returns the communicator's number of a rank of the plan.
  int real(int rank) const { return shifted(rank, c_.root - plan_.root); }
  bool isMapped(int rank) const { return scratch_[real(rank)] != nullptr; }

  /// Return the bytes that a step moves as its chunk `offset`, and their address.
  size_t bytes(const plan::Step& step, int offset, uint64_t unit) const {
    return layout_.count(part(step, offset), unit) * element_;
  }
  std::byte* at(const plan::Step& step, const plan::Place& place, int offset, uint64_t unit) const;

 private:
  int planned(int rank) const { return shifted(rank, plan_.root - c_.root); }
  int shifted(int rank, int by) const {
    if (plan_.kind != CollectiveKind::Broadcast) return rank;
    return (rank + by + size()) % size();
  }
  int part(const plan::Step& step, int offset) const { return (step.part + offset) % plan_.chunks; }
  std::byte* inputBlock(int block) const;
  std::byte* outputBlock(int block) const { return c_.outputBlock(block).data; }
  std::byte* ownPlace(int block) const;
  void placeInput();

  const Collective& c_;
  const plan::Plan& plan_;
  const int rank_;
  const std::vector<std::byte*> scratch_;
  const size_t element_;
  const PlanLayout layout_;
  std::vector<std::byte> copy_;  // copy of the input, if it must survive the output
};

}  // namespace ctran
