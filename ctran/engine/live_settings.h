#pragma once

#include <memory>

#include "ctran/base/config.h"

namespace ctran {

class Communicator;

/// A setting that a rank can be told while it runs, by `torchcomms env set`; see RecordedSetting.
inline const ConfigSeconds kTimeoutSeconds{"TORCHCOMM_TIMEOUT_SECONDS", 600,
                                           "Default timeout of creating a communicator and of its "
                                           "operations. Changed while a job runs, of "
                                           "operations that start from then on.",
                                           ConfigVariable::Change::Live};

/// LiveSettings applies settings to running communicators. One timer per process looks for requests
/// to any of its communicators.
class LiveSettings {
 public:
  /// Applies requests to the communicator from now on, on the thread of PeerWatcher. Does nothing
  /// if the system has no descriptor to spare.
  static void start(const std::shared_ptr<Communicator>& communicator);
  static void stop(Communicator& communicator);
  /// Is called in a child after fork(), which receives no requests.
  static void forget();
};

}  // namespace ctran
