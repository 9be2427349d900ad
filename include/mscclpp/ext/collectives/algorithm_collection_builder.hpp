#pragma once

#include <memory>

#include <mscclpp/algorithm.hpp>

namespace mscclpp {
namespace collective {

/// Gathers algorithms. There is one per process under getInstance(); programs with several
/// communicators make one for each.
class MSCCLPP_API AlgorithmCollectionBuilder {
 public:
  static std::shared_ptr<AlgorithmCollectionBuilder> getInstance();
  /// Forgets that of the process; the next getInstance() makes another.
  static void reset();

  AlgorithmCollectionBuilder();
  ~AlgorithmCollectionBuilder();
  AlgorithmCollectionBuilder(const AlgorithmCollectionBuilder&) = delete;
  AlgorithmCollectionBuilder& operator=(const AlgorithmCollectionBuilder&) = delete;

  void addAlgorithmBuilder(std::shared_ptr<AlgorithmBuilder> builder);
  void setAlgorithmSelector(AlgoSelectFunc selector);
  void setFallbackAlgorithmSelector(AlgoSelectFunc selector);
  /// Builds what was added, each time anew.
  AlgorithmCollection build();
  /// The algorithms that are there by default, with the selectors of this: they are the engine's,
  /// for memory of the host, and reduce in the order of the ranks. The engine has scratch and flags
  /// of its own, so the arguments, which programs for GPUs pass, are left alone.
  AlgorithmCollection buildDefaultAlgorithms(uintptr_t scratchBuffer = 0,
                                             size_t scratchBufferSize = 0, uintptr_t flagBuffer = 0,
                                             size_t flagBufferSize = 0, int rank = 0);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace collective

using collective::AlgorithmCollectionBuilder;

}  // namespace mscclpp
