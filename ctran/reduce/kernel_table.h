#pragma once

#include "ctran/reduce/reduce.h"

namespace ctran {

/// Everything that is compiled per instruction set. Null where a pair is not supported.
struct KernelTable {
  ReduceFn reduce[kReduceKindCount][kDataTypeCount];
  ScaleFn scale[kDataTypeCount];
};

extern const KernelTable kBaselineKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#endif

}  // namespace ctran
