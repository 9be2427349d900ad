#include "ctran/base/data_type.h"

namespace ctran {

std::optional<DataType> opaqueOfSize(size_t bytes) {
  for (DataType type : {DataType::Opaque1, DataType::Opaque2, DataType::Opaque4, DataType::Opaque8,
                        DataType::Opaque16}) {
    if (sizeOf(type) == bytes) return type;
  }
  return std::nullopt;
}

}  // namespace ctran
