#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ibverbx {

/// A size, offset or value of one of the two declarations of the verbs.
struct AbiRow {
  std::string what;
  long long value;

  bool operator==(const AbiRow&) const = default;
};

/// Those of ctran/verbs/abi.h.
std::vector<AbiRow> rowsOfOurs();
/// Those of <infiniband/verbs.h>, which has the same names; none where it is not installed.
std::vector<AbiRow> rowsOfHeader();

#define CTRAN_ABI_TYPE(type) {"sizeof " #type, sizeof(type)},
#define CTRAN_ABI_FIELD(type, field) \
  {#type "::" #field, static_cast<long long>(offsetof(type, field))},
#define CTRAN_ABI_VALUE(name) {#name, static_cast<long long>(name)},

}  // namespace ibverbx
