#pragma once

#include <optional>
#include <vector>

#include "ctran/engine/communicator.h"
#include "ctran/memory/shared_allocation.h"
#include "ctran/window/service.h"
#include "ctran/window/wait_queue.h"
#include "ctran/window/window.h"
#include "ctran/window/window_trace.h"

namespace ctran {

/// The window of the ranks of a communicator. The caller itself reads and writes memory that this
/// rank can map, because its owner is on the same host; the rest goes through a WindowService.
class QueueWindow final : public Window {
 public:
  struct Region {
    size_t bytes = 0;
    size_t signalWords = 0;
    uint32_t tag = 0;
    bool direct = false;  ///< the caller reads and writes it; otherwise it is reached by messages
    std::shared_ptr<std::byte> mapped;
  };

  /// What the transport knows of the memory of all ranks; empty if there is no transport.
  struct Registered {
    std::unique_ptr<MemoryRegistration> own;
    std::vector<RemoteMemory> remotes;
  };

  /// `board` has the signals of this host's ranks. `served`: some ranks reach others by messages.
  QueueWindow(std::shared_ptr<Communicator> communicator, std::vector<Region> regions,
              WindowSignals board, std::span<std::byte> memory, bool served, Registered registered);
  ~QueueWindow() override;

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  size_t bytes(int rank) const override { return region(rank).bytes; }
  size_t signalWords(int rank) const override { return region(rank).signalWords; }
  uint32_t tag(int rank) const override { return region(rank).tag; }
  WindowAccess access(int rank) const override {
    return region(rank).direct ? WindowAccess::Unified : WindowAccess::Separate;
  }
  std::shared_ptr<std::byte> mapped(int rank) const override { return region(rank).mapped; }

  WorkPtr put(int target, size_t offset, std::span<const std::byte> source, Timeout timeout,
              std::shared_ptr<void> keepAlive) override;
  WorkPtr get(int target, size_t offset, std::span<std::byte> destination, Timeout timeout,
              std::shared_ptr<void> keepAlive) override;
  WorkPtr flush(int target, Timeout timeout) override;
  WorkPtr signal(int target, Timeout timeout) override;
  WorkPtr setWord(int target, size_t word, uint64_t value, Timeout timeout) override;
  WorkPtr waitSignal(int origin, Timeout timeout) override;
  WorkPtr waitWord(size_t word, Comparison comparison, uint64_t value, Timeout timeout) override;
  void close(WaitHooks* hooks) override;
  void abort(const std::string& reason) override { communicator_->abort(reason); }

 private:
  const Region& region(int rank) const;
  void begin(int rank) const;
  void checkRange(int target, size_t offset, size_t bytes, const char* what) const;
  void checkWord(int rank, size_t word) const;
  /// An operation of the window, as a Collective describes it.
  struct Call {
    CollectiveKind kind;
    int peer;
    size_t count = 0;
    uint64_t number = 0;
  };
  template <class Run>
  void atOnce(const Call& call, Run run) {
    trace_.around(call.kind, call.peer, call.count, call.number, run);
  }
  WorkPtr wait(WaitQueue& queue, const Call& call, WindowWait what, Timeout timeout,
               std::shared_ptr<void> keepAlive = nullptr);
  WorkPtr awaitTransfer(std::unique_ptr<Transfer> transfer, const Call& call, Timeout timeout,
                        std::shared_ptr<void> keepAlive);
  WorkPtr awaitAnswer(const Call& call, uint64_t number, Timeout timeout);

  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<MemoryRegistration> registration_;
  const std::vector<Region> regions_;
  WindowSignals board_;
  std::shared_ptr<WindowService> service_;  // null if all ranks map all memory
  std::vector<WaitQueue*> signalQueues_;    // per origin
  std::vector<WaitQueue*> answerQueues_;    // per target
  std::vector<WaitQueue*> transferQueues_;  // per target
  WaitQueue* wordQueue_;
  std::vector<uint64_t> signalled_;  // number of signals sent, per target
  std::vector<uint64_t> waited_;     // number of signals waited for, per origin
  WindowTrace trace_;
  bool closed_ = false;
};

}  // namespace ctran
