#pragma once

#include <cstddef>
#include <string_view>

#include "ctran/base/data_type.h"
#include "ctran/base/reduce_op.h"

namespace ctran {

/// dst[i] = ((src[0][i] op src[1][i]) op src[2][i]) ... for `count` elements, in that order.
///
/// `nsrc` is at least 1. `dst` may be one of the sources, otherwise nothing overlaps it. No pointer
/// needs alignment. Avg divides the sum by `divisor`, or by `nsrc` when that is 0: whoever reduces
/// a world's contributions in several calls sums in all but the last. PremulSum is Sum, as
/// contributions were scaled before; see `scale`.
///
/// An element of the result depends on the elements it is made of and on nothing else: not on
/// count, alignment, position or the instruction set in use. Only the sign and payload of a NaN may
/// differ.
///  - 8- and 16-bit floats accumulate in fp32 and are rounded once, to nearest even. Sums beyond
///    the largest float8_e4m3fn become NaN, as that type has no infinity.
///  - Min and Max of floats are NaN if any source is; -0.0 is less than +0.0.
///  - Integers wrap around; their Avg is rounded towards zero.
///  - A bool is true if its byte is not zero; results are 0 or 1.
///  - Products of complex numbers are (ac - bd) + (ad + bc)i, without care for infinite parts.
using ReduceFn = void (*)(std::byte* dst, const std::byte* const* src, int nsrc, size_t count,
                          int divisor);

/// dst[i] = src[i] * factor, for floating and complex types: multiplied in fp64 if that is the type
/// (or its parts), else in fp32 with the factor rounded to fp32; then rounded to the type.
/// `dst` may be `src`.
using ScaleFn = void (*)(std::byte* dst, const std::byte* src, size_t count, double factor);

/// The fastest such function for this machine. Meant to be asked once per operation.
/// Throws Error(InvalidArgument) for what `isSupported` denies.
ReduceFn reduceFn(ReduceKind kind, DataType type);
ScaleFn scaleFn(DataType type);

/// `scaleFn(type)`, called.
void scale(std::byte* dst, const std::byte* src, size_t count, DataType type, double factor);

/// The instruction sets that the same source is compiled for. Baseline is what the compiler emits
/// by default: SSE2 on x86-64, NEON on aarch64.
enum class Isa { Baseline, Avx2, Avx512 };
inline constexpr Isa kAllIsas[] = {Isa::Baseline, Isa::Avx2, Isa::Avx512};

std::string_view nameOf(Isa isa);
bool isAvailable(Isa isa);  ///< in this build, on this machine
Isa isaInUse();             ///< the best available, or CTRAN_SIMD

/// As above for a given instruction set, which must be available.
ReduceFn reduceFnFor(Isa isa, ReduceKind kind, DataType type);
ScaleFn scaleFnFor(Isa isa, DataType type);

}  // namespace ctran
