#include "torchcomms/csrc/hints.hpp"

#include <string>
#include <string_view>

#include "ctran/base/error.h"
#include "ctran/collective/preference.h"
#include "ctran/engine/create.h"

namespace torch::comms {

namespace {

/// Hints of a prefix of ours are known by name, whichever backend is to serve; others belong to
/// others. `known`: the one of backend ncclx, if it may be given here.
void checkMembers(const Hints& hints, std::string_view known) {
  for (const auto& [key, value] : hints) {
    if (!key.starts_with("ncclx::") || key == known) continue;
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       known.empty() ? "a call knows no hint " + key
                                     : "a communicator knows no hint " + key +
                                           "; of that prefix there is " + std::string(known));
  }
}

}  // namespace

void checkHintsOfCall(const Hints& hints) {
  checkMembers(hints, {});
  static_cast<void>(ctran::callHints({hints.begin(), hints.end()}, false));
}

void checkHintsOfCommunicator(const Hints& hints) {
  checkMembers(hints, "ncclx::member");
  ctran::checkHints({hints.begin(), hints.end()});
}

}  // namespace torch::comms
