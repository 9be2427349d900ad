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

/// Device memory that operations of one communicator use one after the other. What was given out
/// stays where it is: graphs know its address.
class StagingMemory {
 public:
  explicit StagingMemory(int device) : device_(device) {}
  /// At least so many bytes. May be called while a stream captures.
  gpu::DevicePtr of(size_t bytes);

 private:
  const int device_;
  std::vector<gpu::DeviceMemory> pieces_;  ///< each larger than all before
};

/// A plan on the GPUs of a communicator: one rank's scratch and signals, which all ranks map, and
/// its kernels. Made in three steps, so that ranks can agree on how each has gone.
///
/// A broadcast has one for each root.
class GpuPlan {
 public:
  /// Why the GPUs cannot serve a call by the plan with at most so many blocks to a kernel, as far
  /// as all ranks agree about it; empty if they can.
  static std::string whyNot(const PlanAlgorithm& algorithm, const Collective& collective,
                            uint32_t blocks);

  /// `root`: of a broadcast. It has about `blocks` blocks, as many on all ranks: all its launches
  /// do.
  GpuPlan(std::shared_ptr<const PlanAlgorithm> algorithm, int root, const device::Team& team,
          int device, uint32_t blocks);

  /// Allocates this rank's memory, zeroed. The descriptor is for the other ranks.
  UniqueFd allocate();
  /// As large on all ranks; depends on CTRAN_GPU_PLAN_BYTES.
  size_t memoryBytes() const { return own_.size(); }
  void connect(const HostGroup& group);
  /// Compiles and loads what a call needs, if that has not been done.
  void prepare(const Collective& collective);

  /// Puts a call that it can serve on `stream`, which may be capturing.
  void launch(const Collective& collective, StagingMemory& staging, const GpuContext& context,
              const GpuTarget& target);

 private:
  struct Buffers;
  /// Where a rank's memory has what a form of the plan needs.
  struct Form {
    size_t signals = 0;     ///< where they begin,
    size_t executions = 0;  ///< what counts executions,
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
  const plan::Plan plan_;        ///< with the root of the calls, without credits that order nothing
  const plan::Plan directPlan_;  ///< which reaches other ranks' buffers, if there is one
  const plan::Kernel source_;
  const device::Team& team_;
  const int device_;
  uint32_t slices_ = 1;
  Form staged_, direct_;
  size_t mail_ = 0;      ///< where what ranks tell each other of their buffers begins,
  size_t launches_ = 0;  ///< and what counts launches
  size_t bytes_ = 0;
  gpu::DeviceMemory own_;
  std::vector<gpu::DeviceMemory> others_;  ///< by rank, nothing for this one
  std::map<std::pair<std::string, std::string>, gpu::Function> kernels_;
};

}  // namespace ctran
