#include "torchcomms/csrc/backends/unknown_hint.hpp"

#include "ctran/base/log.h"

namespace torch::comms {

void noteUnknownHint(const char* backend, const std::string& key) {
  if (key == "persistent_store") return;  // of every group that torch.distributed makes
  ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Warn,
             "backend %s does not know the hint '%s'", backend, key.c_str());
}

}  // namespace torch::comms
