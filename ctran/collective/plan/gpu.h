#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/collective/algorithm.h"
#include "ctran/collective/collective.h"
#include "ctran/collective/gpu/context.h"
#include "ctran/collective/plan/algorithm.h"
#include "ctran/gpu/device/team.cuh"
#include "ctran/gpu/memory.h"
#include "ctran/plan/gpu/kernel.h"
#include "ctran/plan/gpu/run.cuh"
#include "ctran/plan/plan.h"

namespace ctran {

/// Device memory that operations of one communicator use one after the other. Memory that was given
/// out stays where it is, because graphs know its address.
class StagingMemory {
 public:
  explicit StagingMemory(int device) : device_(device) {}
  /// Returns at least `bytes`. May be called while a stream captures.
  gpu::DevicePtr of(size_t bytes);

 private:
  const int device_;
  std::vector<gpu::DeviceMemory> pieces_;  ///< each is larger than all before it
};

/// A plan on the GPUs of a communicator: one rank's scratch and signals, which all ranks map, and
/// its kernels. It is made in three steps, so that ranks can agree on the outcome of each. A
/// broadcast has one for each root.
class GpuPlan {
 public:
  /// Returns why the GPUs cannot serve a call by the plan with at most `blocks` blocks to a kernel,
  /// as far as all ranks agree about it; empty if they can.
  static std::string whyNot(const PlanAlgorithm& algorithm, const Collective& collective,
                            uint32_t blocks);

  /// `root` is that of a broadcast. All launches have about `blocks` blocks, as many on all ranks.
  GpuPlan(std::shared_ptr<const PlanAlgorithm> algorithm, int root, const device::Team& team,
          int device, uint32_t blocks);

  /// Allocates this rank's memory, filled with zeros. Returns the descriptor for the other ranks.
  UniqueFd allocate();
  /// The same on all ranks; depends on CTRAN_GPU_PLAN_BYTES.
  size_t memoryBytes() const { return own_.size(); }
  void connect(const HostGroup& group);
  /// Compiles and loads what a call needs, if that has not been done.
  void prepare(const Collective& collective);

  /// Puts a call that it can serve on `stream`, which may be capturing.
  void launch(const Collective& collective, StagingMemory& staging, const GpuContext& context,
              const GpuTarget& target);

 private:
  struct Buffers;
  /// The offsets in a rank's memory of what one form of the plan needs.
  struct Form {
    size_t signals = 0;     ///< offset of the signals
    size_t executions = 0;  ///< offset of the counts of executions
    size_t scratch = 0;
    uint64_t unitBytes = 0;
  };
  struct Specialization {
    std::string element, op;
    size_t elementBytes;
  };

  Specialization specializationFor(const Collective& collective, const void* input,
                                   const void* output) const;
  gpu::Function kernel(const Specialization& specialization);
  gpu::DevicePtr memoryOf(uint32_t rank) const;
  std::pair<uint32_t, uint32_t> gridFor(const Collective& collective,
                                        const GpuTarget& target) const;
  device::PlanTeam teamOf(const Form& form) const;
  Buffers placed(const Collective& collective, StagingMemory& staging, gpu::Stream stream) const;

  const std::shared_ptr<const PlanAlgorithm> algorithm_;
  const plan::Plan plan_;        ///< has the root of the calls, and no credits that order nothing
  const plan::Plan directPlan_;  ///< the one that reaches other ranks' buffers, if there is one
  const plan::Kernel source_;
  const device::Team& team_;
  const int device_;
  uint32_t slices_ = 1;
  Form staged_, direct_;
  size_t mail_ = 0;      ///< offset of what ranks tell each other of their buffers
  size_t launches_ = 0;  ///< offset of the count of launches
  size_t bytes_ = 0;
  gpu::DeviceMemory own_;
  std::vector<gpu::DeviceMemory> others_;  ///< by rank; empty for this one
  std::map<std::pair<std::string, std::string>, gpu::Function> kernels_;
};

}  // namespace ctran
