// Virtual queue pairs on the stand-in, under thousands of orders of completion. Every schedule is
// known by its seed: VERBS_SEED=<seed> runs that one alone.

#include "ctran/verbs/virtual_qp.h"

#include <arpa/inet.h>

#include <cstdlib>
#include <optional>
#include <random>

#include "tests/unit/verbs/verbs_fixture.h"

namespace ibverbx {
namespace {

/// One end: a device, a virtual completion queue for each direction, and a virtual queue pair.
struct End {
  End(int device, const IbvVirtualQpConfig& config, int cqs, int entries = 1024)
      : context(must(must(IbvDevice::ibvGetDeviceList()).at(device).open())),
        pd(must(context.allocPd())),
        sendCq(queues(cqs, entries)),
        recvCq(queues(cqs, entries)),
        gid(must(context.queryGid(1, 0)).gid),
        qp(make(config)) {}

  std::vector<IbvCq> queues(int count, int entries) {
    std::vector<IbvCq> made;
    for (int i = 0; i < count; ++i) made.push_back(must(context.createCq(entries)));
    return made;
  }
  std::unique_ptr<IbvVirtualQp> make(const IbvVirtualQpConfig& config) {
    return must(IbvVirtualQp::create(context, pd, sendCq, recvCq, config));
  }
  static void join(End& a, IbvVirtualQp& qpOfA, End& b, IbvVirtualQp& qpOfB) {
    IbvRtrOptions toA, toB;
    toA.remoteGid = a.gid;
    toB.remoteGid = b.gid;
    must(qpOfA.connect(qpOfB.businessCard(), toB, {}));
    must(qpOfB.connect(qpOfA.businessCard(), toA, {}));
  }

  IbvContext context;
  IbvPd pd;
  IbvVirtualCq sendCq, recvCq;
  ibv_gid gid;
  std::unique_ptr<IbvVirtualQp> qp;
};

struct Plan {
  size_t offset;
  uint32_t length;
  bool notify, signaled;
};

/// One schedule: random messages from A to B, and whatever order the seed gives.
class Schedule {
 public:
  Schedule(const StandInVerbs& standIn, uint64_t seed, bool faulty)
      : random_(seed), standIn_(standIn) {
    standIn.standInVerbsReset(seed);
    IbvVirtualQpConfig config;
    config.scheme = below(2) ? LoadBalancingScheme::SPRAY : LoadBalancingScheme::DQPLB;
    config.numQps = 1 + below(5);
    config.maxFragmentsPerQp = 1 + below(6);
    config.maxFragmentBytes = 1 + below(64);
    config.maxMessages = 1 + below(6);
    config_ = config;
    a_.emplace(0, config, 1 + below(3));
    b_.emplace(1, config, 1 + below(3));
    End::join(*a_, *a_->qp, *b_, *b_->qp);
    size_t bytes = 0;
    for (uint32_t i = 1 + below(16); i > 0; --i) {
      const uint32_t length = below(4) ? below(400) : below(3);
      plans_.push_back({bytes, length, below(3) > 0, below(2) > 0});
      bytes += length;
      notices_ += plans_.back().notify;
    }
    from_.resize(bytes + 1);
    to_.resize(bytes + 1);
    for (auto& byte : from_) byte = static_cast<uint8_t>(1 + below(255));
    if (faulty) {
      standIn.standInVerbsFail(0, 1 + below(40), 1 + static_cast<int>(below(2)) * 11);
    }
  }

  /// A number for what happened, in its order.
  uint64_t run() {
    IbvMr from = must(a_->pd.regMr(from_.data(), from_.size(), kAllAccess));
    IbvMr to = must(b_->pd.regMr(to_.data(), to_.size(), kAllAccess));
    // No schedule takes more than some thousands; one that hangs fails.
    for (int step = 0; step < 200000; ++step) {
      switch (below(4)) {
        case 0:
          if (posted_ < plans_.size() && !refused_) post(from.lkey(), to.rkey());
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
      if (done()) break;
      // As the transport above does when it hears that the other end has failed.
      if (a_->qp->failed() != b_->qp->failed() && below(50) == 0) {
        a_->qp->fail();
        b_->qp->fail();
      }
    }
    EXPECT_TRUE(done()) << "hangs: " << sent_ << " of " << posted_ << " sent, " << notified_
                        << " of " << received_ << " notices";
    if (a_->qp->failed()) {
      const uint64_t before = standIn_.standInVerbsExecuted();
      for (int i = 0; i < 50; ++i) pollSender(), pollReceiver();
      EXPECT_EQ(standIn_.standInVerbsExecuted(), before) << "something went on";
      for (const auto& [index, bytes] : atCompletion_) {
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(),
                               to_.begin() + static_cast<ptrdiff_t>(plans_[index].offset)))
            << "written after the completion of " << index;
      }
    } else {
      EXPECT_TRUE(std::equal(from_.begin(), from_.end() - 1, to_.begin()));
    }
    return trace_;
  }

  bool failed() const { return a_->qp->failed(); }

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  void trace(uint64_t value) { trace_ = (trace_ ^ value) * 0x100000001b3; }

  bool done() const {
    if (a_->qp->failed() != b_->qp->failed()) return false;
    const bool receiverDone = notified_ == received_;
    if (a_->qp->failed()) return nextSignaled(sent_) >= posted_ && receiverDone;
    return posted_ == plans_.size() && nextSignaled(sent_) == plans_.size() &&
           notified_ == notices_ && receiverDone && quiet();
  }
  /// Unsignaled messages at the end tell nobody when they are done.
  bool quiet() const { return std::equal(from_.begin(), from_.end() - 1, to_.begin()); }

  size_t nextSignaled(size_t index) const {
    while (index < posted_ && !plans_[index].signaled) ++index;
    return index;
  }

  void post(uint32_t lkey, uint32_t rkey) {
    const Plan& plan = plans_[posted_];
    ibv_sge sge{reinterpret_cast<uint64_t>(from_.data()) + plan.offset, plan.length, lkey};
    ibv_send_wr wr{};
    wr.wr_id = posted_;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = plan.notify ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    wr.send_flags = plan.signaled ? IBV_SEND_SIGNALED : 0u;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to_.data()) + plan.offset;
    wr.wr.rdma.rkey = rkey;
    ibv_send_wr* bad = nullptr;
    const Maybe posted = a_->qp->postSend(&wr, &bad);
    if (posted) ++posted_;
    if (!posted && a_->qp->failed()) refused_ = true;
    if (!posted && !a_->qp->failed()) {
      EXPECT_EQ(posted.error().errNum, ENOMEM) << posted.error().errStr;
    }
  }

  void receive() {
    ibv_recv_wr wr{100 + received_, nullptr, nullptr, 0};
    ibv_recv_wr* bad = nullptr;
    if (b_->qp->postRecv(&wr, &bad)) ++received_;
  }

  void pollSender() {
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
      const auto begin = to_.begin() + static_cast<ptrdiff_t>(plan.offset);
      atCompletion_.emplace_back(wc.wr_id, std::vector<uint8_t>(begin, begin + plan.length));
    }
  }

  void pollReceiver() {
    for (const ibv_wc& wc : b_->recvCq.pollCq(1 + static_cast<int>(below(3)))) {
      trace(wc.wr_id * 2 + 1 + wc.status * 64);
      ASSERT_EQ(wc.wr_id, 100 + notified_);
      ++notified_;
      if (wc.status != IBV_WC_SUCCESS) continue;
      uint32_t bytes = 0;
      for (;; ++noticeAt_) {  // this message, and all before it
        ASSERT_LT(noticeAt_, plans_.size());
        ASSERT_TRUE(placed(plans_[noticeAt_])) << "notice before the data of " << noticeAt_;
        bytes += plans_[noticeAt_].length;
        if (plans_[noticeAt_].notify) break;
      }
      ++noticeAt_;
      ASSERT_EQ(wc.byte_len, config_.scheme == LoadBalancingScheme::DQPLB ? bytes : 0u);
    }
  }

  bool placed(const Plan& plan) const {
    const auto begin = from_.begin() + static_cast<ptrdiff_t>(plan.offset);
    return std::equal(begin, begin + plan.length,
                      to_.begin() + static_cast<ptrdiff_t>(plan.offset));
  }

  std::mt19937_64 random_;
  const StandInVerbs& standIn_;
  IbvVirtualQpConfig config_;
  std::vector<uint8_t> from_, to_;
  std::vector<Plan> plans_;
  std::vector<std::pair<size_t, std::vector<uint8_t>>> atCompletion_;
  size_t notices_ = 0, posted_ = 0, received_ = 0, sent_ = 0, notified_ = 0, noticeAt_ = 0;
  bool refused_ = false, failedSend_ = false;
  uint64_t trace_ = 0xcbf29ce484222325;
  std::optional<End> a_, b_;
};

class VerbsVirtualQpTest : public VerbsTest {
 protected:
  /// Runs `count` schedules, or the one that VERBS_SEED names; says how many failed.
  int schedules(uint64_t count, bool faulty) {
    const char* only = std::getenv("VERBS_SEED");
    const uint64_t first = only ? std::strtoull(only, nullptr, 10) : 1;
    if (only) count = 1;
    int failures = 0;
    for (uint64_t seed = first; seed < first + count; ++seed) {
      SCOPED_TRACE("VERBS_SEED=" + std::to_string(seed));
      Schedule schedule(*standIn, seed, faulty);
      schedule.run();
      failures += schedule.failed();
      if (HasFailure()) break;
    }
    return failures;
  }

  ibv_send_wr write(End& from, const IbvMr& source, const IbvMr& to, ibv_sge& sge) {
    (void)from;
    sge = {reinterpret_cast<uint64_t>(source.mr()->addr),
           static_cast<uint32_t>(source.mr()->length), source.lkey()};
    ibv_send_wr wr{};
    wr.wr_id = 5;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(to.mr()->addr);
    wr.wr.rdma.rkey = to.rkey();
    return wr;
  }
};

TEST_F(VerbsVirtualQpTest, EveryOrderOfCompletionsGivesTheSame) {
  EXPECT_EQ(schedules(3000, false), 0);
}

TEST_F(VerbsVirtualQpTest, AFailureAtAnyMomentEndsEverything) {
  const int failures = schedules(3000, true);
  if (!std::getenv("VERBS_SEED")) {
    EXPECT_GT(failures, 500);
  }
}

TEST_F(VerbsVirtualQpTest, ASeedIsASchedule) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    uint64_t traces[2];
    for (uint64_t& trace : traces) trace = Schedule(*standIn, seed, false).run();
    EXPECT_EQ(traces[0], traces[1]) << seed;
  }
}

// The seeds' example.
TEST_F(VerbsVirtualQpTest, SenderAndReceiverGetACompletionPerMessage) {
  for (const auto scheme : {LoadBalancingScheme::DQPLB, LoadBalancingScheme::SPRAY}) {
    IbvVirtualQpConfig config;
    config.scheme = scheme;
    config.maxFragmentBytes = 1000;
    End sender(0, config, 1), receiver(1, config, 1);
    End::join(sender, *sender.qp, receiver, *receiver.qp);
    std::vector<uint8_t> source(100'001, 3), target(100'001);
    IbvMr from = must(sender.pd.regMr(source.data(), source.size(), kAllAccess));
    IbvMr to = must(receiver.pd.regMr(target.data(), target.size(), kAllAccess));
    IbvVirtualQp &recvQp = *receiver.qp, &sendQp = *sender.qp;

    ibv_recv_wr recvWr{9, nullptr, nullptr, 0};
    ibv_recv_wr* recvWrBad = nullptr;
    must(recvQp.postRecv(&recvWr, &recvWrBad));

    ibv_sge sge;
    ibv_send_wr sendWr = write(sender, from, to, sge);
    ibv_send_wr* sendWrBad = nullptr;
    must(sendQp.postSend(&sendWr, &sendWrBad));

    for (int polls = 0, found = 0; found < 1; ++polls) {
      ASSERT_LT(polls, 1000);
      auto wcVector = sender.sendCq.pollCq(1);
      if (wcVector.empty()) {  // the receiver makes its progress too
        ASSERT_TRUE(receiver.recvCq.pollCq(0).empty());
        continue;
      }
      EXPECT_EQ(wcVector[0].wr_id, 5u);
      EXPECT_EQ(wcVector[0].status, IBV_WC_SUCCESS);
      ++found;
    }
    auto wcVector = receiver.recvCq.pollCq(1);
    for (int polls = 0; wcVector.empty() && polls < 1000; ++polls) {
      wcVector = receiver.recvCq.pollCq(1);
    }
    ASSERT_EQ(wcVector.size(), 1u);
    EXPECT_EQ(wcVector[0].wr_id, 9u);
    EXPECT_EQ(target, source);
  }
}

TEST_F(VerbsVirtualQpTest, SeveralShareOneQueue) {
  IbvVirtualQpConfig config;
  End a(0, config, 2), b(1, config, 2);
  auto secondOfA = a.make(config), secondOfB = b.make(config);
  End::join(a, *a.qp, b, *b.qp);
  End::join(a, *secondOfA, b, *secondOfB);
  uint8_t source[16] = {1}, target[16] = {};
  IbvMr from = must(a.pd.regMr(source, sizeof source, kAllAccess));
  IbvMr to = must(b.pd.regMr(target, sizeof target, kAllAccess));
  std::vector<uint32_t> seen;
  for (IbvVirtualQp* qp : {a.qp.get(), secondOfA.get()}) {
    ibv_sge sge;
    ibv_send_wr wr = write(a, from, to, sge), *bad = nullptr;
    must(qp->postSend(&wr, &bad));
  }
  for (int polls = 0; seen.size() < 2 && polls < 100; ++polls) {
    for (const ibv_wc& wc : a.sendCq.pollCq(1)) seen.push_back(wc.qp_num);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector{a.qp->qpNum(), secondOfA->qpNum()}));
}

TEST_F(VerbsVirtualQpTest, AMarkThatCannotComeEndsIt) {
  IbvVirtualQpConfig config;
  config.numQps = 1;
  End honest(1, config, 1);
  Side liar(0);
  IbvQp qp = liar.makeQp();
  must(qp.init(1, kAllAccess));
  connect(qp, honest.qp->qpNum(), honest.gid);
  IbvRtrOptions path;
  path.remoteGid = liar.gid;
  must(honest.qp->connect({config.scheme, config.maxFragmentsPerQp, {qp.qpNum()}}, path, {}));
  ibv_recv_wr recv{1, nullptr, nullptr, 0}, *badRecv = nullptr;
  must(honest.qp->postRecv(&recv, &badRecv));
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htonl(FragmentMark::pack(100'000, true));
  must(qp.postSend(&wr, &bad));
  std::vector<ibv_wc> got;
  for (int polls = 0; got.empty() && polls < 100; ++polls) got = honest.recvCq.pollCq(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].status, IBV_WC_BAD_RESP_ERR);
  EXPECT_TRUE(honest.qp->failed());
}

TEST_F(VerbsVirtualQpTest, WhatDoesNotFitIsRefusedWithItsReason) {
  IbvVirtualQpConfig config;
  End a(0, config, 1, 300), b(1, config, 1);
  const auto reasonOf = [&](const IbvVirtualQpConfig& wanted) {
    const auto made = IbvVirtualQp::create(a.context, a.pd, a.sendCq, a.recvCq, wanted);
    return made ? std::string() : made.error().errStr;
  };
  EXPECT_NE(reasonOf(config).find("44 entries left"), std::string::npos) << reasonOf(config);
  IbvVirtualQpConfig large = config;
  large.maxFragmentBytes = 1u << 31;
  EXPECT_NE(reasonOf(large).find("port allows"), std::string::npos) << reasonOf(large);
  large = config;
  large.maxFragmentsPerQp = 1 << 16;
  EXPECT_NE(reasonOf(large).find("max_send_wr"), std::string::npos) << reasonOf(large);
  // Nothing of these tries is left in the queues.
  large = config;
  large.numQps = 1;
  large.maxFragmentsPerQp = 44;
  EXPECT_EQ(reasonOf(large), "");

  IbvVirtualQpBusinessCard card = b.qp->businessCard();
  card.scheme = LoadBalancingScheme::SPRAY;
  EXPECT_TRUE(a.qp->connect(card, {}, {}).hasError());
  ibv_send_wr wr{}, *bad = nullptr;
  EXPECT_TRUE(a.qp->postSend(&wr, &bad).hasError()) << "not connected";
  EXPECT_EQ(bad, &wr);
}

TEST_F(VerbsVirtualQpTest, ReadsAreSpreadToo) {
  IbvVirtualQpConfig config;
  config.maxFragmentBytes = 7;
  End a(0, config, 1), b(1, config, 1);
  End::join(a, *a.qp, b, *b.qp);
  std::vector<uint8_t> here(1000), there(1000, 8);
  IbvMr to = must(a.pd.regMr(here.data(), here.size(), kAllAccess));
  IbvMr from = must(b.pd.regMr(there.data(), there.size(), kAllAccess));
  ibv_sge sge;
  ibv_send_wr wr = write(a, to, from, sge), *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_READ;
  must(a.qp->postSend(&wr, &bad));
  std::vector<ibv_wc> got;
  for (int polls = 0; got.empty() && polls < 100; ++polls) got = a.sendCq.pollCq(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(here, there);
}

}  // namespace
}  // namespace ibverbx
