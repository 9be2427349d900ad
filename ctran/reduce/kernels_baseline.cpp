#include "ctran/reduce/kernels.inl"

namespace ctran {

constinit const KernelTable kBaselineKernels = makeKernels();

}  // namespace ctran
