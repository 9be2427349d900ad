#include "ctran/verbs/virtual_cq.h"

#include <array>

#include "ctran/verbs/virtual_qp.h"

namespace ibverbx {

IbvVirtualCq::IbvVirtualCq(std::vector<IbvCq> cqs) {
  for (IbvCq& cq : cqs) {
    const int entries = cq.cq()->cqe;
    physical_.push_back({std::move(cq), entries, {}});
  }
}

void IbvVirtualCq::list(Endpoint& endpoint) {
  if (endpoint.listed) return;
  endpoint.listed = true;
  endpoint.next = nullptr;
  (first_ ? last_->next : first_) = &endpoint;
  last_ = &endpoint;
}

void IbvVirtualCq::unlist(const Endpoint& endpoint) {
  if (!endpoint.listed) return;
  Endpoint* before = nullptr;
  for (Endpoint* at = first_; at != &endpoint; at = at->next) before = at;
  (before ? before->next : first_) = endpoint.next;
  if (last_ == &endpoint) last_ = before;
}

Expected<int> IbvVirtualCq::pollCq(std::span<ibv_wc> completions) {
  std::array<ibv_wc, 32> batch;
  for (const Endpoint* at = first_; at; at = at->next) {
    if (at->receives) at->qp->repay();
  }
  for (Physical& physical : physical_) {
    // All of them: whoever has armed the queue is not told of what is in it already.
    for (int found = static_cast<int>(batch.size()); found == static_cast<int>(batch.size());) {
      const Expected<int> count = physical.cq.pollCq(batch);
      if (!count) return count.error();
      found = *count;
      for (int i = 0; i < found; ++i) {
        const auto target = physical.targets.find(batch[i].qp_num);
        if (target == physical.targets.end()) continue;  // of one that was destroyed
        target->second.qp->completed(target->second.index, batch[i]);
      }
    }
  }
  int filled = 0;
  // Each listed side is asked once: what it posts now completes in a later call. One that may have
  // more goes to the back.
  const int room = static_cast<int>(completions.size());
  for (const Endpoint* last = last_; first_ && filled < room;) {
    Endpoint& endpoint = *first_;
    while (filled < room && endpoint.qp->next(endpoint.receives, completions[filled])) ++filled;
    unlist(endpoint);
    endpoint.listed = false;
    if (filled == room || (endpoint.receives && endpoint.qp->owes())) list(endpoint);
    if (&endpoint == last) break;
  }
  return filled;
}

Maybe IbvVirtualCq::requestNotify() {
  for (Physical& physical : physical_) {
    if (Maybe armed = physical.cq.requestNotify(); !armed) return armed;
  }
  return Unit{};
}

std::vector<ibv_wc> IbvVirtualCq::pollCq(int count) {
  std::vector<ibv_wc> completions(count);
  const Expected<int> filled = pollCq(std::span(completions));
  if (!filled) {
    ibv_wc broken{};
    broken.status = IBV_WC_FATAL_ERR;
    return {broken};
  }
  completions.resize(*filled);
  return completions;
}

}  // namespace ibverbx
