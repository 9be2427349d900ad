// Compiles every kernel for some worlds into the disk cache, on all cores: a matrix of types and
// operations meets them all, one after the other. Usage: precompile RANKS...

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/collective/gpu/kernels.h"

int main(int count, char** arguments) {
  using namespace ctran;
  std::vector<gpu::CompileRequest> requests;
  const std::string architecture = "sm_90";
  requests.push_back(signalsRequest(architecture));
  for (int i = 1; i < count; ++i) {
    const int ranks = std::atoi(arguments[i]);
    requests.push_back(movingRequest(architecture, ranks));
    requests.push_back(rowsRequest(architecture, ranks));
    requests.push_back(quantizedRequest(architecture, ranks));
    for (int type = 0; type <= static_cast<int>(DataType::Complex128); ++type) {
      for (int op = 0; op < kReduceKindCount; ++op) {
        if (!isSupported(static_cast<ReduceKind>(op), static_cast<DataType>(type))) continue;
        const auto t = static_cast<DataType>(type);
        const auto o = static_cast<ReduceKind>(op);
        requests.push_back(pipelineRequest(architecture, ranks, t, o));
        requests.push_back(linesRequest(architecture, ranks, t, o));
        if (deviceReduction(t, o).fitsPackets()) {
          requests.push_back(reducingRequest(architecture, ranks, t, o));
        }
      }
    }
  }
  // Processes: the compiler takes one thread at a time.
  const unsigned workers = std::thread::hardware_concurrency();
  for (unsigned w = 0; w < workers; ++w) {
    if (fork() != 0) continue;
    int failed = 0;
    for (size_t i = w; i < requests.size(); i += workers) {
      try {
        gpu::compile(requests[i]);
      } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        failed = 1;
      }
    }
    _exit(failed);
  }
  int failures = 0;
  for (int status = 0; wait(&status) > 0;) failures += status != 0;
  std::printf("%zu modules, %d workers failed\n", requests.size(), failures);
  return failures != 0;
}
