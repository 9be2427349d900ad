#pragma once

#include <memory>
#include <string>

#include "ctran/engine/communicator.h"
#include "ctran/select/selector.h"

namespace ctran {

/// Registers a communicator by its token, for interfaces that pass no pointers.
void announce(const std::shared_ptr<Communicator>& communicator);
/// Returns null if there is no such communicator, or it is gone.
std::shared_ptr<Communicator> findCommunicator(uint64_t token);
/// Finds a communicator by name and rank; the newest one if there are several.
std::shared_ptr<Communicator> findCommunicator(const std::string& name, int rank);

/// An Explainer knows what serves the calls of a communicator whose tensors are not the CPU's.
class Explainer {
 public:
  virtual ~Explainer() = default;
  /// `bytes`: what every rank contributes, see contributionBytes. `hints`: those of the call, or
  /// null.
  virtual Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                              const CallHints* hints) const = 0;
  /// Prepares what the first such call would prepare, see GpuDomain. Throws Error(InvalidArgument)
  /// if the communicator has no kernels.
  virtual void prepareCall(CollectiveKind kind, size_t bytes, DataType type, ReduceKind op,
                           std::shared_ptr<const CallHints> hints);
  /// Takes nothing but this where there is a choice, until it is told otherwise with "": for
  /// measurements. The same on all ranks. GpuDomain takes "COLLECTIVE=ALGORITHM", backend ncclx the
  /// name of a member. Throws Error(Unsupported) where there is no choice.
  virtual void force(const std::string& algorithm);
  /// Chooses by these measurements from now on, which are the same on all ranks. Returns the table
  /// as it is to be kept. Throws as `force` does.
  virtual TuningTable use(TuningTable table);
};

/// Registers the explainer of the communicator with this token; it replaces an earlier one.
void announceExplainer(uint64_t token, std::weak_ptr<Explainer> explainer);
std::shared_ptr<Explainer> findExplainer(uint64_t token);

}  // namespace ctran
