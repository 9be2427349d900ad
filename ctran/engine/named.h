#pragma once

#include <memory>
#include <string>

#include "ctran/engine/communicator.h"
#include "ctran/select/selector.h"

namespace ctran {

/// The communicators of this process by their tokens, for interfaces that pass no pointers.
void announce(const std::shared_ptr<Communicator>& communicator);
/// Null if there is none, or it is gone.
std::shared_ptr<Communicator> findCommunicator(uint64_t token);
/// The same by name and rank; of several the last one.
std::shared_ptr<Communicator> findCommunicator(const std::string& name, int rank);

/// Knows what serves the calls of a communicator whose tensors are not the CPU's.
class Explainer {
 public:
  virtual ~Explainer() = default;
  /// `bytes`: that every rank contributes, see contributionBytes. `hints`: of the call, or null.
  virtual Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                              const CallHints* hints) const = 0;
  /// Does what the first such call would, see GpuDomain. Throws Error(InvalidArgument) where there
  /// is nothing of the kind.
  virtual void prepareCall(CollectiveKind kind, size_t bytes, DataType type, ReduceKind op,
                           std::shared_ptr<const CallHints> hints);
  /// Takes nothing but this where there is a choice, until it is told otherwise with "": for
  /// measurements. The same on all ranks. GpuDomain takes "COLLECTIVE=ALGORITHM", backend ncclx the
  /// name of a member. Throws Error(Unsupported) where there is no choice.
  virtual void force(const std::string& algorithm);
  /// From now on goes by what was measured, which is the same on all ranks; returns it as it is to
  /// be kept. Throws as `force`.
  virtual TuningTable use(TuningTable table);
};

/// By the token of the communicator; the last one stands.
void announceExplainer(uint64_t token, std::weak_ptr<Explainer> explainer);
std::shared_ptr<Explainer> findExplainer(uint64_t token);

}  // namespace ctran
