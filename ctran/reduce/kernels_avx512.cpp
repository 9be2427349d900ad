#if defined(__x86_64__)

#include "ctran/reduce/kernels.inl"

namespace ctran {

constinit const KernelTable kAvx512Kernels = makeKernels();

}  // namespace ctran

#endif
