#pragma once

#include <cstdint>

#include "ctran/base/log.h"
#include "ctran/collective/signature.h"
#include "ctran/engine/core.h"
#include "ctran/trace/operation_trace.h"

namespace ctran {

/// Records the operations of a window that its queues do not run: those that end in their call.
class WindowTrace {
 public:
  explicit WindowTrace(Core& core) : core_(core) {}

  /// Does `run`, as that operation; `peer` and `count` as of a Collective of that kind. `number`:
  /// of a signal among those of its sender.
  template <class Run>
  void around(CollectiveKind kind, int peer, uint64_t count, uint64_t number, Run run) {
    const OperationRecord record = makeWindowRecord(kind, peer, count);
    trace_.begin(core_.recording, /*isMessage=*/true, record, bytesOf(kind, count),
                 windowTag(0, number), 0);
    run();
    bytesOf(kind, count) > OperationTrace::kBriefBytes ? trace_.ended() : trace_.endedAtOnce();
    if (logs(LogComponent::Collective, LogLevel::Debug)) {
      logText(LogComponent::Collective, LogLevel::Debug,
              "'" + core_.name + "' " + describe(record));
    }
  }

 private:
  static uint64_t bytesOf(CollectiveKind kind, uint64_t count) {
    return kind == CollectiveKind::Put || kind == CollectiveKind::Get ? count : 0;
  }

  Core& core_;
  OperationTrace trace_;
};

}  // namespace ctran
