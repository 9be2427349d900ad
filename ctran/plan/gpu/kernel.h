#pragma once

#include <string>

#include "ctran/plan/plan.h"
#include "ctran/plan/verify.h"

namespace ctran::plan {

/// A plan as the CUDA C++ of one rank: a kernel without loops over steps, without tables, and
/// without an interpreter, that reads like `toText`.
///
/// It is launched with `lanes` x slices blocks, all of which have to be on the GPU together, as
/// entry(PlanArguments); see plan/gpu/run.cuh for what that needs.
/// It knows by itself how often it has run, so that a captured launch can be replayed. A launch has
/// the same number of slices on all ranks; plans share neither signals nor scratch.
struct Kernel {
  /// Includes "ctran/plan/gpu/run.cuh". Defines to compile it with: CTRAN_ELEMENT and CTRAN_OP, of
  /// gpu/device/element.cuh and reduce.cuh.
  std::string source;
  std::string entry;
  int lanes = 1;         ///< blocks per slice
  bool packets = false;  ///< whether the plan sends packets as such
  /// What a form of the plan needs.
  struct Memory {
    int signals = 0;  ///< counters of this rank, per slice: 4 bytes each, 0 at first
    int scratch = 0;  ///< chunks of this rank, of `PlanTeam::unitBytes` per slice
  };
  Memory memory;
  Memory direct;  ///< of the form that reaches buffers of other ranks' callers, if there is one
};

/// `properties` as `verify` gave them. `space`: a namespace for the code, where several kernels are
/// compiled together. Throws Error(Unsupported) where the plan reaches what other GPUs do not map:
/// buffers of the caller of another rank, more ranks than a kernel knows.
///
/// `direct`: the same with as many lanes, which may reach those buffers; it serves a launch for
/// which all ranks have mapped them.
Kernel kernelOf(const Plan& plan, const Properties& properties, int rank,
                const std::string& space = "made", const Plan* direct = nullptr);
/// `run` of namespace `space` alone, of a plan that may reach buffers of other ranks' callers.
std::string runOf(const Plan& plan, const Properties& properties, int rank,
                  const std::string& space);

}  // namespace ctran::plan
