#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/collective/task.h"
#include "ctran/transport/condition.h"

namespace ctran {

/// Which rank a receive takes its message from: whoever is first to offer one.
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

/// What one receive has to do with one peer, again and again for the receives of a queue.
class Reception {
 public:
  virtual ~Reception() = default;

  /// From now on the receive takes a message of its tag, unless the claim has been taken.
  virtual void begin(const Collective& receive, Claim& claim) = 0;
  /// Goes as far as possible; whether the message is here. Throws Error(Mismatch).
  virtual bool poll() = 0;
  /// What `poll` waits for.
  virtual Condition waiting() const = 0;
  /// Lets go of the receive's memory.
  virtual void end() noexcept = 0;
};

/// What a peer sends to this rank. Messages of one tag are received in order; any number of
/// receives at a time, from any thread.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  virtual std::unique_ptr<Reception> reception() = 0;
};

/// Where the receives of one queue happen: from one peer, or from all of them.
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

/// Takes the next message of the tag, which must be of the same type and count. From several peers:
/// the first that comes.
Task receive(ReceiveContext& context, const Collective& c);

}  // namespace ctran
