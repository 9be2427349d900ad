#include "torchcomms/csrc/nccl_plugin/plugin.h"

#include <dlfcn.h>

#include <cstdlib>

#include "ctran/base/config.h"

namespace torchcomms::nccl_plugin {
namespace {

const ctran::ConfigBool kProfiler{
    "TORCHCOMMS_NCCL_PROFILER", false,
    "Whether backends nccl and ncclx have NCCL tell what it does, for `torchcomms analyze`, `top` "
    "and `trace` (docs/backends/nccl.md). Not where NCCL_PROFILER_PLUGIN is set."};
const ctran::ConfigString kTuning{
    "TORCHCOMMS_NCCL_TUNING", "",
    "A file that says which algorithm and protocol NCCL is to take for which call, of backends "
    "nccl and ncclx (docs/backends/nccl.md). Not where NCCL_TUNER_PLUGIN is set.",
    "path"};

}  // namespace

std::string path() {
  Dl_info info{};
  const auto* own = reinterpret_cast<const void*>(&path);
  return dladdr(own, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : std::string();
}

std::string tuningFile() { return kTuning.get(); }

void offer() {
  if (kProfiler.get()) ::setenv("NCCL_PROFILER_PLUGIN", path().c_str(), 0);
  if (!tuningFile().empty()) ::setenv("NCCL_TUNER_PLUGIN", path().c_str(), 0);
}

}  // namespace torchcomms::nccl_plugin
