#include "tests/unit/verbs/schedule.h"

#include <sched.h>

#include <chrono>

namespace ibverbx {

End::End(int device, const IbvVirtualQpConfig& config, int cqs, int entries)
    : context(must(must(IbvDevice::ibvGetDeviceList()).at(device).open())),
      pd(must(context.allocPd())),
      sendCq(queues(cqs, entries)),
      recvCq(queues(cqs, entries)),
      gid(gidOf(context)),
      qp(make(config)) {}

std::vector<IbvCq> End::queues(int count, int entries) const {
  std::vector<IbvCq> made;
  for (int i = 0; i < count; ++i) made.push_back(must(context.createCq(entries)));
  return made;
}

std::unique_ptr<IbvVirtualQp> End::make(const IbvVirtualQpConfig& config) {
  return must(IbvVirtualQp::create(context, pd, sendCq, recvCq, config));
}

IbvRtrOptions End::pathTo(const ibv_gid& remoteGid) const {
  IbvRtrOptions path;
  path.remoteGid = remoteGid;
  path.gidIndex = static_cast<uint8_t>(gid.gid_index);
  return path;
}

void End::join(End& a, IbvVirtualQp& qpOfA, End& b, IbvVirtualQp& qpOfB) {
  must(qpOfA.connect(qpOfB.businessCard(), a.pathTo(b.gid.gid), {}));
  must(qpOfB.connect(qpOfA.businessCard(), b.pathTo(a.gid.gid), {}));
}

Schedule::Schedule(const Fabric& fabric, uint64_t seed, bool faulty)
    : random_(seed), fabric_(fabric) {
  if (fabric.standIn) fabric.standIn->standInVerbsReset(seed);
  config_.scheme = below(2) ? LoadBalancingScheme::SPRAY : LoadBalancingScheme::DQPLB;
  config_.numQps = 1 + below(5);
  config_.maxFragmentsPerQp = 1 + below(6);
  config_.maxFragmentBytes = (1 + below(64)) * fabric.scale;
  config_.maxMessages = 1 + below(6);
  const uint32_t joined = below(3);
  if (joined < 2) config_.maxJoinedBytes = joined * below(200) * fabric.scale;
  config_.maxInlineBytes = below(2) * 96;
  if (fabric.adjust) fabric.adjust(config_);
  a_.emplace(fabric.deviceOfA, config_, 1 + below(3));
  b_.emplace(fabric.deviceOfB, config_, 1 + below(3));
  End::join(*a_, *a_->qp, *b_, *b_->qp);
  size_t bytes = 0;
  for (uint32_t i = 1 + below(16); i > 0; --i) {
    const uint32_t length = below(4) ? below(400) * fabric.scale + below(fabric.scale) : below(3);
    const bool reads = below(5) == 0;
    plans_.push_back({bytes, length, !reads && below(3) > 0, below(2) > 0, reads});
    bytes += length;
    notices_ += plans_.back().notify;
  }
  from_.resize(bytes + 1);
  to_.resize(bytes + 1);
  got_.resize(bytes + 1);
  there_.resize(bytes + 1);
  for (auto* bytesOf : {&from_, &there_}) {
    for (auto& byte : *bytesOf) byte = static_cast<uint8_t>(1 + below(255));
  }
  if (faulty && fabric.standIn) {
    fabric.standIn->standInVerbsFail(0, 1 + below(40), 1 + static_cast<int>(below(2)) * 11);
  } else if (faulty) {
    wrongKeyAt_ = below(static_cast<uint32_t>(plans_.size()));
  }
}

uint64_t Schedule::run() {
  IbvMr from = must(a_->pd.regMr(from_.data(), from_.size(), kAllAccess));
  IbvMr to = must(b_->pd.regMr(to_.data(), to_.size(), kAllAccess));
  IbvMr got = must(a_->pd.regMr(got_.data(), got_.size(), kAllAccess));
  IbvMr there = must(b_->pd.regMr(there_.data(), there_.size(), kAllAccess));
  const Keys keys{from.lkey(), to.rkey(), got.lkey(), there.rkey()};
  // No schedule takes more than some thousands of steps, or a second; one that hangs fails.
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
  for (int steps = 0; !done(); ++steps) {
    if (fabric_.standIn ? steps == 200000 : Clock::now() > deadline) break;
    step(keys);
    if (!fabric_.standIn && steps % 8 == 0) ::sched_yield();  // soft-RoCE needs a CPU, too
  }
  EXPECT_TRUE(done()) << "hangs: " << sent_ << " of " << posted_ << " sent, " << notified_ << " of "
                      << received_ << " notices";
  checkEnd();
  return trace_;
}

void Schedule::step(const Keys& keys) {
  switch (below(4)) {
    case 0:
      if (posted_ < plans_.size() && !refused_) post(keys);
      break;
    case 1:
      if (received_ < notices_) receive();
      break;
    case 2:
      pollSender();
      break;
    default:
      pollReceiver();
  }
  // As the transport above does when it hears that the other end has failed.
  if (a_->qp->failed() != b_->qp->failed() && below(50) == 0) {
    a_->qp->fail();
    b_->qp->fail();
  }
}

void Schedule::checkEnd() {
  if (!a_->qp->failed()) {
    EXPECT_TRUE(quiet());
    return;
  }
  const uint64_t before = fabric_.standIn ? fabric_.standIn->standInVerbsExecuted() : 0;
  for (int i = 0; i < 50; ++i) pollSender(), pollReceiver();
  if (fabric_.standIn) {
    EXPECT_EQ(fabric_.standIn->standInVerbsExecuted(), before) << "something went on";
  }
  for (const auto& [index, bytes] : atCompletion_) {
    EXPECT_TRUE(
        std::equal(bytes.begin(), bytes.end(),
                   target(plans_[index]).begin() + static_cast<ptrdiff_t>(plans_[index].offset)))
        << "written after the completion of " << index;
  }
}

bool Schedule::done() const {
  if (a_->qp->failed() != b_->qp->failed()) return false;
  const bool receiverDone = notified_ == received_;
  if (a_->qp->failed()) return nextSignaled(sent_) >= posted_ && receiverDone;
  return posted_ == plans_.size() && nextSignaled(sent_) == plans_.size() &&
         notified_ == notices_ && receiverDone && quiet();
}

/// Unsignaled messages at the end tell nobody when they are done.
bool Schedule::quiet() const {
  return std::all_of(plans_.begin(), plans_.end(),
                     [this](const Plan& plan) { return placed(plan); });
}

size_t Schedule::nextSignaled(size_t index) const {
  while (index < posted_ && !plans_[index].signaled) ++index;
  return index;
}

void Schedule::post(const Keys& keys) {
  const Plan& plan = plans_[posted_];
  const uint32_t rkey = plan.reads ? keys.there : keys.to;
  const auto here = reinterpret_cast<uint64_t>((plan.reads ? got_ : from_).data());
  const auto there = reinterpret_cast<uint64_t>((plan.reads ? there_ : to_).data());
  ibv_sge sge{here + plan.offset, plan.length, plan.reads ? keys.got : keys.from};
  ibv_send_wr wr{};
  wr.wr_id = posted_;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = plan.reads    ? IBV_WR_RDMA_READ
              : plan.notify ? IBV_WR_RDMA_WRITE_WITH_IMM
                            : IBV_WR_RDMA_WRITE;
  wr.send_flags = plan.signaled ? IBV_SEND_SIGNALED : 0u;
  wr.wr.rdma.remote_addr = there + plan.offset;
  wr.wr.rdma.rkey = posted_ == wrongKeyAt_ ? ~rkey : rkey;
  ibv_send_wr* bad = nullptr;
  const Maybe posted = a_->qp->postSend(&wr, &bad);
  if (posted) ++posted_;
  if (!posted && a_->qp->failed()) refused_ = true;
  if (!posted && !a_->qp->failed()) {
    EXPECT_EQ(posted.error().errNum, ENOMEM) << posted.error().errStr;
  }
}

void Schedule::receive() {
  ibv_recv_wr wr{100 + received_, nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  if (b_->qp->postRecv(&wr, &bad)) ++received_;
}

void Schedule::pollSender() {
  for (const ibv_wc& wc : a_->sendCq.pollCq(1 + static_cast<int>(below(3)))) {
    trace(wc.wr_id * 2 + wc.status * 64);
    // In order; one that was not signaled completes only if it failed.
    ASSERT_LT(wc.wr_id, posted_);
    ASSERT_GE(wc.wr_id, sent_);
    if (wc.status == IBV_WC_SUCCESS) {
      ASSERT_EQ(wc.wr_id, nextSignaled(sent_));
      ASSERT_FALSE(failedSend_) << "a success after a failure";
      const Plan& plan = plans_[wc.wr_id];
      ASSERT_EQ(wc.byte_len, plan.length);
      ASSERT_TRUE(placed(plan)) << "complete before its data";
    } else {
      failedSend_ = true;
    }
    sent_ = wc.wr_id + 1;
    const Plan& plan = plans_[wc.wr_id];
    const auto begin = target(plan).begin() + static_cast<ptrdiff_t>(plan.offset);
    atCompletion_.emplace_back(wc.wr_id, std::vector<uint8_t>(begin, begin + plan.length));
  }
}

void Schedule::pollReceiver() {
  for (const ibv_wc& wc : b_->recvCq.pollCq(1 + static_cast<int>(below(3)))) {
    trace(wc.wr_id * 2 + 1 + wc.status * 64);
    ASSERT_EQ(wc.wr_id, 100 + notified_);
    ++notified_;
    if (wc.status != IBV_WC_SUCCESS) continue;
    uint32_t bytes = 0;
    for (;; ++noticeAt_) {  // this message, and all before it
      ASSERT_LT(noticeAt_, plans_.size());
      if (plans_[noticeAt_].reads) continue;
      ASSERT_TRUE(placed(plans_[noticeAt_])) << "notice before the data of " << noticeAt_;
      bytes += plans_[noticeAt_].length;
      if (plans_[noticeAt_].notify) break;
    }
    ++noticeAt_;
    ASSERT_EQ(wc.byte_len, config_.scheme == LoadBalancingScheme::DQPLB ? bytes : 0u);
  }
}

bool Schedule::placed(const Plan& plan) const {
  const auto begin = source(plan).begin() + static_cast<ptrdiff_t>(plan.offset);
  return std::equal(begin, begin + plan.length,
                    target(plan).begin() + static_cast<ptrdiff_t>(plan.offset));
}

}  // namespace ibverbx
