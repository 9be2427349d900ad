// Virtual queue pairs on the stand-in, under thousands of orders of completion. Every schedule is
// known by its seed: VERBS_SEED=<seed> runs that one alone.

#include "ctran/verbs/virtual_qp.h"

#include <arpa/inet.h>

#include <cstdlib>

#include "tests/unit/verbs/schedule.h"

namespace ibverbx {
namespace {

class VerbsVirtualQpTest : public VerbsTest {
 protected:
  /// Runs `count` schedules, or the one that VERBS_SEED names; says how many failed.
  int schedules(uint64_t count, bool faulty) {
    const char* only = std::getenv("VERBS_SEED");
    const uint64_t first = only ? std::strtoull(only, nullptr, 10) : 1;
    if (only) count = 1;
    const Fabric fabric{.standIn = standIn, .adjust = {}};
    int failures = 0;
    for (uint64_t seed = first; seed < first + count; ++seed) {
      SCOPED_TRACE("VERBS_SEED=" + std::to_string(seed));
      Schedule schedule(fabric, seed, faulty);
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
  const Fabric fabric{.standIn = standIn, .adjust = {}};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    uint64_t traces[2];
    for (uint64_t& trace : traces) trace = Schedule(fabric, seed, false).run();
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

// One work request instead of a write, its completion, and a notice.
TEST_F(VerbsVirtualQpTest, ASmallMessageOfSprayGoesWithItsNotice) {
  for (const uint32_t bytes : {0u, 8u, 1000u, 1001u, 4000u}) {
    IbvVirtualQpConfig config;
    config.scheme = LoadBalancingScheme::SPRAY;
    config.maxJoinedBytes = 2000;
    config.maxFragmentBytes = 1000;
    End a(0, config, 1), b(1, config, 1);
    End::join(a, *a.qp, b, *b.qp);
    std::vector<uint8_t> source(bytes + 1, 7), target(bytes + 1);
    IbvMr from = must(a.pd.regMr(source.data(), source.size(), kAllAccess));
    IbvMr to = must(b.pd.regMr(target.data(), target.size(), kAllAccess));
    ibv_recv_wr recv{9, nullptr, nullptr, 0}, *badRecv = nullptr;
    must(b.qp->postRecv(&recv, &badRecv));
    ibv_sge sge;
    ibv_send_wr wr = write(a, from, to, sge), *bad = nullptr;
    sge.length = bytes;
    const uint64_t before = standIn->standInVerbsExecuted();
    must(a.qp->postSend(&wr, &bad));
    std::vector<ibv_wc> sent, got;
    for (int polls = 0; polls < 100 && (sent.empty() || got.empty()); ++polls) {
      if (sent.empty()) sent = a.sendCq.pollCq(1);
      if (got.empty()) got = b.recvCq.pollCq(1);
    }
    ASSERT_TRUE(sent.size() == 1 && got.size() == 1);
    EXPECT_EQ(sent[0].byte_len, bytes);
    EXPECT_EQ(got[0].byte_len, 0u);
    const uint32_t fragments = (bytes + 999) / 1000;
    EXPECT_EQ(standIn->standInVerbsExecuted() - before, bytes <= 1000 ? 1 : fragments + 1) << bytes;
    source[bytes] = 0;
    EXPECT_EQ(target, source);
  }
}

TEST_F(VerbsVirtualQpTest, MessagesAreInlinedAsFarAsTheDeviceHasRoomAndTheCallerWants) {
  for (const bool all : {true, false}) {
    for (const unsigned flag : {0u, static_cast<unsigned>(IBV_SEND_INLINE)}) {
      for (const uint32_t bytes : {100u, 200u}) {
        standIn->standInVerbsReset(5);
        IbvVirtualQpConfig config;
        config.maxInlineBytes = 220;  // of which the stand-in has 128
        config.inlinesAll = all;
        End a(0, config, 1), b(1, config, 1);
        End::join(a, *a.qp, b, *b.qp);
        std::vector<uint8_t> source(bytes, 1), target(bytes);
        IbvMr from = must(a.pd.regMr(source.data(), source.size(), kAllAccess));
        IbvMr to = must(b.pd.regMr(target.data(), target.size(), kAllAccess));
        ibv_sge sge;
        ibv_send_wr wr = write(a, from, to, sge), *bad = nullptr;
        wr.send_flags |= flag;
        must(a.qp->postSend(&wr, &bad));
        std::fill(source.begin(), source.end(), uint8_t{2});
        std::vector<ibv_wc> sent;
        for (int polls = 0; polls < 1000 && sent.empty(); ++polls) sent = a.sendCq.pollCq(1);
        ASSERT_EQ(sent.size(), 1u);
        EXPECT_EQ(target[0], (all || flag != 0) && bytes == 100 ? 1 : 2);
      }
    }
  }
}

/// Who takes a notice and polls no more has not used up the sender's room.
TEST_F(VerbsVirtualQpTest, HalfOfTheReceivesArePostedWhetherTheReceiverPollsAgainOrNot) {
  for (const uint32_t depth : {1u, 2u, 3u, 8u}) {
    IbvVirtualQpConfig config;
    config.numQps = 1;
    config.maxFragmentsPerQp = depth;
    End a(0, config, 1), b(1, config, 1);
    End::join(a, *a.qp, b, *b.qp);
    uint8_t source[16] = {1}, target[16] = {};
    IbvMr from = must(a.pd.regMr(source, sizeof source, kAllAccess));
    IbvMr to = must(b.pd.regMr(target, sizeof target, kAllAccess));
    for (int round = 0; round < 40; ++round) {
      ibv_recv_wr recv{9, nullptr, nullptr, 0}, *badRecv = nullptr;
      must(b.qp->postRecv(&recv, &badRecv));
      ibv_sge sge;
      ibv_send_wr wr = write(a, from, to, sge), *bad = nullptr;
      must(a.qp->postSend(&wr, &bad));
      // As many polls as it takes to see the notice, and none more.
      std::vector<ibv_wc> sent, got;
      for (int polls = 0; polls < 100 && sent.empty(); ++polls) sent = a.sendCq.pollCq(1);
      ASSERT_EQ(sent.size(), 1u) << "depth " << depth << ", round " << round;
      for (int polls = 0; polls < 100 && got.empty(); ++polls) got = b.recvCq.pollCq(1);
      ASSERT_EQ(got.size(), 1u);
    }
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
  liar.connect(qp, honest.qp->qpNum(), honest.gid.gid);
  const IbvRtrOptions path = honest.pathTo(liar.gid.gid);
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
