#include "ctran/reduce/reduce.h"

#include <string>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/reduce/kernel_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ctran {

namespace {

const ConfigChoice kSimd{"CTRAN_SIMD", "auto|baseline|avx2|avx512", "auto",
                         "Instruction set of reductions on the CPU; auto takes the best there is."};

#if defined(__x86_64__)
bool hasF16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

const KernelTable& kernelsOf(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::Avx2:
      return kAvx2Kernels;
    case Isa::Avx512:
      return kAvx512Kernels;
#endif
    default:
      return kBaselineKernels;
  }
}

Isa chooseIsa() {
  const size_t choice = kSimd.index();
  if (choice == 0) {
    for (Isa isa : {Isa::Avx512, Isa::Avx2}) {
      if (isAvailable(isa)) return isa;
    }
    return Isa::Baseline;
  }
  const Isa isa = kAllIsas[choice - 1];
  if (!isAvailable(isa)) {
    throw Error(ErrorKind::Unsupported,
                "CTRAN_SIMD asks for " + std::string(nameOf(isa)) + ", which this machine lacks");
  }
  return isa;
}

}  // namespace

std::string_view nameOf(Isa isa) {
  constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512"};
  return kNames[static_cast<size_t>(isa)];
}

bool isAvailable(Isa isa) {
  switch (isa) {
    case Isa::Baseline:
      return true;
#if defined(__x86_64__)
    case Isa::Avx2:
      return __builtin_cpu_supports("avx2") && hasF16c();
    case Isa::Avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    default:
      return false;
  }
}

Isa isaInUse() {
  static const Isa isa = chooseIsa();
  return isa;
}

ReduceFn reduceFnFor(Isa isa, ReduceKind kind, DataType type) {
  const ReduceFn fn = kernelsOf(isa).reduce[static_cast<size_t>(kind)][static_cast<size_t>(type)];
  if (fn == nullptr) throw Error(ErrorKind::InvalidArgument, whyUnsupported(kind, type));
  return fn;
}

ScaleFn scaleFnFor(Isa isa, DataType type) {
  const ScaleFn fn = kernelsOf(isa).scale[static_cast<size_t>(type)];
  if (fn == nullptr) {
    throw Error(ErrorKind::InvalidArgument, whyUnsupported(ReduceKind::PremulSum, type));
  }
  return fn;
}

ReduceFn reduceFn(ReduceKind kind, DataType type) { return reduceFnFor(isaInUse(), kind, type); }
ScaleFn scaleFn(DataType type) { return scaleFnFor(isaInUse(), type); }

void scale(std::byte* dst, const std::byte* src, size_t count, DataType type, double factor) {
  scaleFn(type)(dst, src, count, factor);
}

}  // namespace ctran
