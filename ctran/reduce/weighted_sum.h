#pragma once

#include <cstddef>

#include "ctran/base/data_type.h"

namespace ctran {

/// Sums of rows, each times a weight: of float16, bfloat16 and float32 in fp32, of float64 in fp64,
/// rounded to the type in the end, to nearest even.
struct WeightedSum {
  DataType type;

  /// Throws Error(InvalidArgument) for any other type.
  explicit WeightedSum(DataType type);
  static bool isSupported(DataType type);

  size_t partialBytes() const { return type == DataType::Float64 ? 8 : 4; }  ///< of an element

  /// partial[i] += weight * row[i]. No pointer needs alignment but that of partials.
  void add(std::byte* partial, const std::byte* row, size_t count, float weight) const;
  /// partial[i] += other[i], which is one, too.
  void addPartial(std::byte* partial, const std::byte* other, size_t count) const;
  void round(std::byte* to, const std::byte* partial, size_t count) const;
};

}  // namespace ctran
