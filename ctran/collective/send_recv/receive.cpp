#include "ctran/collective/send_recv/receive.h"

namespace ctran {

ReceiveContext::ReceiveContext(const std::vector<Mailbox*>& mailboxes) {
  for (Mailbox* const mailbox : mailboxes) receptions_.push_back(mailbox->reception());
  waiting_.resize(receptions_.size());
  begun_.resize(receptions_.size());
}

/// One receive, for as long as it lasts.
class ReceiveContext::Use {
 public:
  Use(ReceiveContext& context, const Collective& c)
      : context_(context), c_(c), begun_(context.begun_) {}
  ~Use() {
    for (size_t i = 0; i < begun_.size(); ++i) {
      if (begun_[i]) context_.receptions_[i]->end();
      begun_[i] = false;
    }
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  /// Returns whether the message is here.
  bool poll() {
    for (size_t i = 0; i < begun_.size(); ++i) {
      if (!begun_[i]) begin(i);
      if (begun_[i] && context_.receptions_[i]->poll()) return true;
    }
    return false;
  }

  Condition waiting() {
    for (size_t i = 0; i < begun_.size(); ++i) {
      context_.waiting_[i] = begun_[i] ? context_.receptions_[i]->waiting() : c_.after[i];
    }
    Condition all =
        Condition::any(context_.waiting_.data(), static_cast<int>(context_.waiting_.size()));
    all.anyWillDo = true;
    return all;
  }

  int winner() const { return claim_.winner(); }

 private:
  /// Unless a receive that was called before this one comes first.
  void begin(size_t i) {
    if (!c_.after.empty()) {
      Condition older = c_.after[i];
      if (!older.holds()) return;
    }
    begun_[i] = true;  // also if the next line throws
    context_.receptions_[i]->begin(c_, claim_);
  }

  ReceiveContext& context_;
  const Collective& c_;
  Claim claim_;
  std::vector<char>& begun_;
};

Task receive(ReceiveContext& context, const Collective& c) {
  ReceiveContext::Use use(context, c);
  while (!use.poll()) co_await use.waiting();
  if (c.source != nullptr) *c.source = use.winner();
}

}  // namespace ctran
