#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ctran/base/export.h"

namespace ctran {

/// Element types that the engine reduces. Everything else moves as `Opaque*`: bytes of a given
/// element size, which can be sent and gathered but not reduced.
enum class DataType : uint8_t {
  Bool,
  Int8,
  Int16,
  Int32,
  Int64,
  UInt8,
  UInt16,
  UInt32,
  UInt64,
  Float8E4M3,  ///< the "fn" form: no infinities, one NaN pattern per sign
  Float8E5M2,
  Float16,
  BFloat16,
  Float32,
  Float64,
  Complex64,
  Complex128,
  Opaque1,
  Opaque2,
  Opaque4,
  Opaque8,
  Opaque16,
};

inline constexpr int kDataTypeCount = 22;

struct DataTypeInfo {
  std::string_view name;
  size_t size;  ///< bytes of an element
};

CTRAN_API const DataTypeInfo& info(DataType type);
inline size_t sizeOf(DataType type) { return info(type).size; }
inline std::string_view nameOf(DataType type) { return info(type).name; }

/// Returns the opaque type of that element size, if there is one.
CTRAN_API std::optional<DataType> opaqueOfSize(size_t bytes);

}  // namespace ctran
