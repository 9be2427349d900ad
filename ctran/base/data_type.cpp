#include "ctran/base/data_type.h"

#include <iterator>

namespace ctran {

namespace {

// In the order of the enumeration.
constexpr DataTypeInfo kInfo[] = {
    {"bool", 1},        {"int8", 1},        {"int16", 2},    {"int32", 4},   {"int64", 8},
    {"uint8", 1},       {"uint16", 2},      {"uint32", 4},   {"uint64", 8},  {"float8_e4m3fn", 1},
    {"float8_e5m2", 1}, {"float16", 2},     {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
    {"complex64", 8},   {"complex128", 16}, {"opaque1", 1},  {"opaque2", 2}, {"opaque4", 4},
    {"opaque8", 8},     {"opaque16", 16},
};
static_assert(std::size(kInfo) == kDataTypeCount);

/// For a type that only another rank can name.
constexpr DataTypeInfo kUnknownType = {"unknown type", 1};

}  // namespace

const DataTypeInfo& info(DataType type) {
  const auto index = static_cast<size_t>(type);
  return index < std::size(kInfo) ? kInfo[index] : kUnknownType;
}

std::optional<DataType> opaqueOfSize(size_t bytes) {
  for (DataType type : {DataType::Opaque1, DataType::Opaque2, DataType::Opaque4, DataType::Opaque8,
                        DataType::Opaque16}) {
    if (sizeOf(type) == bytes) return type;
  }
  return std::nullopt;
}

}  // namespace ctran
