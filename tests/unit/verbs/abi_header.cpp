// The layouts of rdma-core's header, in a file that sees none of our declarations.

#include "tests/unit/verbs/abi_rows.h"

#if __has_include(<infiniband/verbs.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <infiniband/verbs.h>
#pragma GCC diagnostic pop

std::vector<ibverbx::AbiRow> ibverbx::rowsOfHeader() {
#define TYPE CTRAN_ABI_TYPE
#define FIELD CTRAN_ABI_FIELD
#define VALUE CTRAN_ABI_VALUE
  return {
#include "tests/unit/verbs/abi_fields.inc"
  };
}
#else
std::vector<ibverbx::AbiRow> ibverbx::rowsOfHeader() { return {}; }
#endif
