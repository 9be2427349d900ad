#pragma once

#include <algorithm>
#include <vector>

#include "ctran/collective/blocks.h"
#include "ctran/collective/collective.h"
#include "ctran/plan/plan.h"
#include "ctran/transport/shm/arena.h"

namespace ctran {

/// How the data of a call is divided: into blocks, these into parts, these into units, of which one
/// is moved in each execution.
class PlanLayout {
 public:
  PlanLayout(const plan::Plan& plan, size_t count, size_t element);
  /// Of a call that a plan serves.
  explicit PlanLayout(const Collective& c);

  uint64_t units() const { return units_; }
  size_t stride() const { return stride_; }                 ///< bytes of a chunk of scratch
  size_t scratchBytes() const { return slots_ * stride_; }  ///< of a rank

  /// Elements of the unit that belong to the part, and where they begin in the block.
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

/// Where the chunks of a plan are in one call, as one rank sees it. A broadcast from another root
/// than the plan's is one in which all ranks have other numbers: those of the plan are meant where
/// nothing else is said.
class PlanMemory {
 public:
  static constexpr size_t kScratchBytes = Arena::kRingBytes;  ///< of a rank

  /// `c.plan` does it. `scratch`: per rank of the communicator, null where it is not mapped here.
  PlanMemory(const Collective& c, const PlanLayout& layout, int rank,
             std::vector<std::byte*> scratch);

  const plan::Plan& plan() const { return plan_; }
  const PlanLayout& layout() const { return layout_; }
  size_t element() const { return element_; }
  int self() const { return planned(rank_); }
  int size() const { return static_cast<int>(scratch_.size()); }

  /// The communicator's number of a rank of the plan.
  int real(int rank) const { return shifted(rank, c_.root - plan_.root); }
  bool isMapped(int rank) const { return scratch_[real(rank)] != nullptr; }

  /// What a step moves as its chunk `offset`, in bytes; and where that is.
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
  std::vector<std::byte> copy_;  // of the input, if it must survive the output
};

}  // namespace ctran
