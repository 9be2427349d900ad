#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ctran/base/data_type.h"
#include "ctran/base/export.h"

namespace ctran {

enum class ReduceKind : uint8_t { Sum, Product, Min, Max, BitAnd, BitOr, BitXor, Avg, PremulSum };

inline constexpr int kReduceKindCount = 9;

/// A reduction. `factor` belongs to PremulSum alone: every rank multiplies its own contribution by
/// its own factor before the sum, so ranks may pass different ones.
struct ReduceOp {
  ReduceKind kind = ReduceKind::Sum;
  double factor = 1.0;
  /// GPUs only: if not null, the factor is at this address on the device.
  const double* factorAt = nullptr;
};

CTRAN_API std::string_view nameOf(ReduceKind kind);

/// Returns whether `kind` has a meaning on `type`: bitwise on integers and bool, averages on all
/// but bool, order on all but complex types, factors on floating and complex, arithmetic on all but
/// opaque.
CTRAN_API bool isSupported(ReduceKind kind, DataType type);

/// Returns the reason if it is not supported, as a sentence for the user; empty if it is.
CTRAN_API std::string whyUnsupported(ReduceKind kind, DataType type);

}  // namespace ctran
