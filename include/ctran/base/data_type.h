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

/// In the order of the enumeration.
inline constexpr DataTypeInfo kDataTypes[kDataTypeCount] = {
    {"bool", 1},        {"int8", 1},        {"int16", 2},    {"int32", 4},   {"int64", 8},
    {"uint8", 1},       {"uint16", 2},      {"uint32", 4},   {"uint64", 8},  {"float8_e4m3fn", 1},
    {"float8_e5m2", 1}, {"float16", 2},     {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
    {"complex64", 8},   {"complex128", 16}, {"opaque1", 1},  {"opaque2", 2}, {"opaque4", 4},
    {"opaque8", 8},     {"opaque16", 16},
};
/// For a type that only another rank can name.
inline constexpr DataTypeInfo kUnknownType = {"unknown type", 1};

inline const DataTypeInfo& info(DataType type) {
  const auto index = static_cast<size_t>(type);
  return index < static_cast<size_t>(kDataTypeCount) ? kDataTypes[index] : kUnknownType;
}
inline size_t sizeOf(DataType type) { return info(type).size; }
inline std::string_view nameOf(DataType type) { return info(type).name; }

/// Returns the opaque type of that element size, if there is one.
CTRAN_API std::optional<DataType> opaqueOfSize(size_t bytes);

}  // namespace ctran
