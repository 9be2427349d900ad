#include "ctran/collective/send_recv/net.h"

#include <memory>
#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/signature.h"

namespace ctran {
namespace {

MessageName messageName(int tag, uint64_t sequence) {
  return {kMessageQueue, static_cast<uint32_t>(tag), sequence};
}

/// The operation as the peer is told of it; the type, on which both have to agree, is the
/// signature.
OperationRecord messageRecord(const Collective& c) {
  return makeRecord(c, 0, static_cast<uint64_t>(c.type));
}

void checkMessage(int rank, const Collective& c, const Transmission& message) {
  const OperationRecord& other = message.other.operation;
  const bool known = other.what != 0;  // a sender hears nothing of eager messages
  if (!message.isWrong &&
      (!known || (other.signature == static_cast<uint64_t>(c.type) && other.count == c.count))) {
    return;
  }
  throw Error(
      ErrorKind::Mismatch,
      "rank " + std::to_string(rank) + " called " + c.describe() + ", but rank " +
          std::to_string(message.peer) + " called " + describe(other),
      {rank, message.peer}, c.describe(),
      "messages of a pair of ranks and a tag are matched in order; type and size must agree");
}

}  // namespace

/// A small message ends when the transport has taken it; a larger one leaves when the receiver is
/// ready, and goes straight into its memory.
Task sendOverNet(NetChannel& channel, const Collective& c) {
  const MessageName name = messageName(c.tag, channel.sequences[c.tag]++);
  const auto message =
      channel.transport.send(name, channel.peer, c.input, c.blockBytes(), messageRecord(c));
  co_await message->ended();
  checkMessage(channel.rank, c, *message);
}

/// A receive in this mailbox. One that names its sender binds its memory at once; one from any rank
/// when a message is on offer.
class NetMailbox::Receiver final : public Reception {
 public:
  explicit Receiver(NetMailbox& mailbox) : mailbox_(mailbox) {}

  void begin(const Collective& receive, Claim& claim) override {
    receive_ = &receive;
    claim_ = &claim;
    if (receive.root < 0) {
      // So that each end learns of the other's end.
      if (mailbox_.peer_ != mailbox_.rank_) mailbox_.transport_.connect(mailbox_.peer_);
    } else if (claim.take(mailbox_.peer_)) {
      bind();
    }
  }

  bool poll() override {
    if (!message_ && !takeOffer()) return false;
    Condition ended = message_->ended();
    if (!ended.holds()) return false;
    checkMessage(mailbox_.rank_, *receive_, *message_);
    return true;
  }

  Condition waiting() const override {
    if (message_) return message_->ended();
    return mailbox_.transport_.offered(mailbox_.peer_, offers_);
  }

  void end() noexcept override { message_.reset(); }

 private:
  bool takeOffer() {
    offers_ = mailbox_.transport_.offers();
    const std::lock_guard lock(mailbox_.mutex_);
    const MessageName next = messageName(receive_->tag, mailbox_.sequences_[receive_->tag]);
    if (!mailbox_.transport_.hasOffer(next, mailbox_.peer_) || !claim_->take(mailbox_.peer_)) {
      return false;
    }
    bindLocked();
    return true;
  }

  void bind() {
    const std::lock_guard lock(mailbox_.mutex_);
    bindLocked();
  }

  void bindLocked() {
    const MessageName name = messageName(receive_->tag, mailbox_.sequences_[receive_->tag]++);
    message_ = mailbox_.transport_.receive(name, mailbox_.peer_, receive_->output,
                                           receive_->blockBytes(), messageRecord(*receive_));
  }

  NetMailbox& mailbox_;
  const Collective* receive_ = nullptr;
  Claim* claim_ = nullptr;
  uint64_t offers_ = 0;  // that have been looked at
  std::unique_ptr<Inbound> message_;
};

std::unique_ptr<Reception> NetMailbox::reception() { return std::make_unique<Receiver>(*this); }

}  // namespace ctran
