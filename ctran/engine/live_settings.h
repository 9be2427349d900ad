#pragma once

#include <memory>

#include "ctran/base/config.h"

namespace ctran {

class Communicator;

/// What a rank is told while it runs, see RecordedSetting: `torchcomms env set`.
inline const ConfigSeconds kTimeoutSeconds{"TORCHCOMM_TIMEOUT_SECONDS", 600,
                                           "Default timeout of creating a communicator and of its "
                                           "operations. Changed while a job runs, of "
                                           "operations that start from then on.",
                                           ConfigVariable::Change::Live};

/// One timer per process looks for what is asked of any of its communicators.
class LiveSettings {
 public:
  /// From now on the communicator takes what is asked of it, on the thread of PeerWatcher. Does
  /// nothing where the system has no descriptor to spare.
  static void start(const std::shared_ptr<Communicator>& communicator);
  static void stop(Communicator& communicator);
  /// In a child after fork(), which is told nothing.
  static void forget();
};

}  // namespace ctran
