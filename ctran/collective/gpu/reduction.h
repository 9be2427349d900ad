#pragma once

#include <cstddef>
#include <cstdint>

#include "ctran/collective/gpu/context.h"
#include "ctran/collective/reduce/arguments.cuh"

namespace ctran {

/// A reduction of GPUs in parts: rank r reduces part r of what all ranks contribute, and sends the
/// result to the ranks that need it. Counts are of elements as the kernels see them.
struct GpuReduction {
  GpuReduction(const GpuContext& gpu, const Collective& collective);

  device::ReduceArguments arguments{};
  size_t element = 1;  ///< in bytes
  size_t count = 0;    ///< of the whole tensor; for reduce-scatter, of one block
  size_t most = 0;     ///< of the longest part
};

/// Compiles ReducingKernels, see Algorithm::prepare.
void prepareReduction(GpuContext& gpu, const Collective& collective);

/// Returns the bytes of the longest part of a reduction, as all ranks know them.
size_t longestPart(const AlgorithmQuery& query);
/// Returns how many packets `bytes` take; none if packets do not hold the type.
size_t packetsOf(const AlgorithmQuery& query, size_t bytes);
/// Returns how many packets there may be from one rank to another.
inline size_t slotPackets(const AlgorithmQuery& query) { return query.gpus->slotBytes / 16; }
inline bool fitsPackets(const AlgorithmQuery& query) { return query.element <= 8; }
inline constexpr const char* kNoPackets = "packets do not hold elements of this type";

/// Returns whether the root does all of a reduce by itself, which is faster for small ones.
inline bool isReducedByRoot(CollectiveKind kind, size_t bytes) {
  return kind == CollectiveKind::Reduce && bytes <= kPacketLimit;
}

/// The bytes of all parts from which lines are faster than packets, measured on two GPUs.
inline constexpr size_t kLinesFrom = 1 << 20;

}  // namespace ctran
