// Settles on real GPUs what the protocols of our kernels rely on. Usage:
//   litmus KERNELS.cu RESULTS.jsonl [GROUP...]
// Groups: sharing memory abort capture cost all_reduce speed (default: all). Exit code: groups that
// did not finish.

#include <cstdio>
#include <cstdlib>

#include "tests/gpu/litmus/gpus.h"
#include "tests/gpu/litmus/groups.h"
#include "tests/gpu/litmus/harness.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s KERNELS.cu RESULTS.jsonl [GROUP...]\n", argv[0]);
    return 64;
  }
  // A kernel that is loaded at its first launch may wait for kernels that are running, and those
  // here wait for it.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  const std::string kernels = litmus::readFile(argv[1]);
  return litmus::runGroups({{"sharing", 40, [&] { litmus::sharing(kernels); }},
                            {"memory", 60, [&] { litmus::memoryModel(kernels); }},
                            {"abort", 25, [&] { litmus::aborts(kernels); }},
                            {"capture", 25, [&] { litmus::captures(kernels); }},
                            {"cost", 25, [&] { litmus::callCosts(kernels); }},
                            {"all_reduce", 90, [&] { litmus::allReduce(kernels); }},
                            {"speed", 60, [&] { litmus::allReduceSpeed(kernels); }}},
                           argv[2], {argv + 3, argv + argc});
}
