#if defined(__x86_64__)

#include "ctran/reduce/kernels.inl"

namespace ctran {

constinit const KernelTable kAvx2Kernels = makeKernels();

}  // namespace ctran

#endif
