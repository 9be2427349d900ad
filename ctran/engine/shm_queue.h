#pragma once

#include <span>

#include "ctran/collective/all_to_all/rows.h"
#include "ctran/collective/shm_context.h"
#include "ctran/engine/collective_queue.h"

namespace ctran {

/// The queue of the collectives of a communicator on one host.
class ShmQueue final : public CollectiveQueue {
 public:
  ShmQueue(Core& core, Arena& arena);
  Task start(const Collective& collective) override;
  void ended() override { shm_.end(); }
  void checkPeers() override { shm_.checkSignatures(); }
  Error timeoutError(const Collective& collective, const Condition& waiting,
                     int64_t timeoutNanos) override;
  void agree(Communicator& communicator, WaitHooks* hooks) override;
  void recordTraffic(Recording& recording) override { shm_.recordTraffic(recording); }

 private:
  /// A number at an address in the memory of a process. Whoever can read it there can read that
  /// process.
  struct Memory {
    int process;
    const std::byte* at;
    uint64_t token;
  };
  void tryReading(std::span<const Memory> memories);
  void agreeOnReading(const Collective& collective);

  ShmContext shm_;
  uint64_t token_ = 0;          // other ranks try to read it
  bool readingIsOpen_ = false;  // whether the ranks read each other's memory is still to be decided
  bool readingIsKnown_ = false;  // all ranks have said what they can
  const HostMap map_;            // of the one host
  RowPaths rows_;
};

}  // namespace ctran
