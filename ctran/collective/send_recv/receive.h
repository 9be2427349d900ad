#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/collective/task.h"
#include "ctran/transport/condition.h"

namespace ctran {

/// Decides from which rank a receive takes its message: the first to offer one.
class Claim {
 public:
  bool take(int rank) {
    int nobody = kNobody;
    return winner_.compare_exchange_strong(nobody, rank, std::memory_order_acq_rel);
  }
  int winner() const { return winner_.load(std::memory_order_acquire); }
  static constexpr int kNobody = -1;

 private:
  std::atomic<int> winner_{kNobody};
};

/// The part of a receive that concerns one peer. The receives of a queue use it one after another.
class Reception {
 public:
  virtual ~Reception() = default;

  /// Starts a receive, which takes a message of its tag unless the claim has been taken.
  virtual void begin(const Collective& receive, Claim& claim) = 0;
  /// Goes as far as possible. Returns whether the message is here. Throws Error(Mismatch).
  virtual bool poll() = 0;
  /// Returns what `poll` waits for.
  virtual Condition waiting() const = 0;
  /// Releases the receive's memory.
  virtual void end() noexcept = 0;
};

/// The messages that a peer sends to this rank. Messages of one tag are received in order. There
/// may be any number of receives at a time, on any thread.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  virtual std::unique_ptr<Reception> reception() = 0;
};

/// What the receives of one queue work with: messages from one peer, or from all of them.
class ReceiveContext {
 public:
  explicit ReceiveContext(const std::vector<Mailbox*>& mailboxes);

  FrameMemory frame;

 private:
  friend Task receive(ReceiveContext& context, const Collective& c);
  class Use;

  std::vector<std::unique_ptr<Reception>> receptions_;
  std::vector<Condition> waiting_;
  std::vector<char> begun_;
};

/// Takes the next message of the tag, which must have the same type and count; if there are several
/// peers, the first message that comes.
Task receive(ReceiveContext& context, const Collective& c);

}  // namespace ctran
