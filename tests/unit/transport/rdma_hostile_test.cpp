// A rank that speaks RDMA and lies: its card, the word of its credit, its frames and its notices.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ctran/transport/ib/link.h"
#include "tests/unit/support/tcp_ranks.h"
#include "tests/unit/verbs/verbs_fixture.h"

namespace ctran::testing {
namespace {

using namespace ibverbx;

/// Rank 1, which the test plays: a queue pair, and memory that rank 0 writes its frames to.
struct Liar {
  Liar() : memory(kRing + 8), qp(side.makeQp()) {
    must(qp.init(1, kAllAccess));
    for (int i = 0; i < 64; ++i) {
      ibv_recv_wr wr{}, *bad = nullptr;
      must(qp.postRecv(&wr, &bad));
    }
    card.qps = 1;
    card.qpNums[0] = qp.qpNum();
    std::memcpy(card.gid, side.gid.gid.raw, sizeof card.gid);
    card.mtu = IBV_MTU_1024;
    card.key = region.rkey();
    card.ring = numberOf(memory.data());
    card.word = card.ring + kRing;
    card.ringBytes = kRing;
    card.devices = card.ways = card.reads = 1;
  }

  void write(ibv_wr_opcode opcode, const void* from, size_t bytes, uint64_t to, uint32_t mark = 0) {
    std::memcpy(outgoing.data(), from, bytes);
    ibv_sge sge{numberOf(outgoing.data()), static_cast<uint32_t>(bytes), sources.lkey()};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.imm_data = htonl(mark);
    wr.wr.rdma = {to, theirs.key};
    must(qp.postSend(&wr, &bad));
  }
  void writeFrame(const FrameHeader& frame) {
    write(IBV_WR_RDMA_WRITE_WITH_IMM, &frame, sizeof frame, theirs.ring + written,
          FragmentMark::pack(marks++, true));
    written += sizeof frame;
  }

  static constexpr size_t kRing = 256 << 10;
  Side side{0};
  std::vector<std::byte> memory, outgoing = std::vector<std::byte>(4096);
  IbvMr region = must(side.pd.regMr(memory.data(), memory.size(), kAllAccess));
  IbvMr sources = must(side.pd.regMr(outgoing.data(), outgoing.size(), kAllAccess));
  IbvQp qp;
  IbCard card, theirs;
  uint64_t written = 0, marks = 0;
};

class RdmaHostile : public TcpPair {
 protected:
  void SetUp() override {
    ASSERT_NE(StandInVerbs::get(), nullptr);
    StandInVerbs::get()->standInVerbsReset(0);
    ::setenv("CTRAN_IB", "1", 1);
    ::setenv("CTRAN_IB_HCA", "=standin_0", 1);
    ::setenv("CTRAN_IB_RING", "256K", 1);
    liar_.emplace();
    say(frame(FrameType::Opened, 0));
    hear(FrameType::Card, &liar_->theirs);
  }
  void TearDown() override {
    liar_.reset();
    transport_.reset();
    ::setenv("CTRAN_IB", "0", 1);
    for (const char* name : {"CTRAN_IB_HCA", "CTRAN_IB_RING"}) ::unsetenv(name);
    EXPECT_EQ(StandInVerbs::get()->standInVerbsObjects(), 0) << "verbs' objects are left";
  }

  static FrameHeader frame(FrameType type, size_t bytes, uint64_t offset = 0) {
    return {type, static_cast<uint32_t>(bytes), {kCollectiveQueue, 0, 0}, offset};
  }
  void sayCard(const IbCard& card) {
    say(frame(FrameType::Card, sizeof card), std::as_bytes(std::span(&card, 1)));
  }
  /// The next frame of rank 0 is of this type; its payload.
  void hear(FrameType type, IbCard* payload = nullptr) {
    FrameHeader header;
    hearBytes(std::as_writable_bytes(std::span(&header, 1)));
    ASSERT_EQ(header.type, type);
    ASSERT_EQ(header.bytes, payload == nullptr ? 0 : sizeof *payload);
    if (payload != nullptr) hearBytes(std::as_writable_bytes(std::span(payload, 1)));
  }
  void hearBytes(std::span<std::byte> to) {
    size_t got = 0;
    until([&] { return (got += readSome(socket_, to.subspan(got)).bytes) == to.size(); });
  }
  /// Rank 0 sends over RDMA, and reads what comes over it.
  void switchToRdma() {
    sayCard(liar_->card);
    hear(FrameType::Connected);
    liar_->side.connect(liar_->qp, liar_->theirs.qpNums[0], gidOfTheirs());
    say(frame(FrameType::Connected, 0));
    liar_->writeFrame(frame(FrameType::Opened, 0));
    hear(FrameType::Proven);
    say(frame(FrameType::Proven, 0));
    say(frame(FrameType::Switch, 0));
    hear(FrameType::Switch);
    EXPECT_EQ(transport_->pathTo(1), "RDMA (standin_0:1)");
  }
  ibv_gid gidOfTheirs() const {
    ibv_gid gid;
    std::memcpy(gid.raw, liar_->theirs.gid, sizeof gid.raw);
    return gid;
  }

  std::optional<Liar> liar_;
};

TEST_F(RdmaHostile, ACardOutOfBoundsEndsTheConnection) {
  const std::function<void(IbCard&)> lies[] = {
      [](IbCard& card) { card.ways = UINT32_MAX; },
      [](IbCard& card) { card.ways = 65; },
      [](IbCard& card) { card.ways = 0; },
      [](IbCard& card) { card.devices = 2; },
      [](IbCard& card) { card.devices = 0; },
      [](IbCard& card) { card.device = 1; },
      [](IbCard& card) { card.qps = 0; },
      [](IbCard& card) { card.qps = 17; },
      [](IbCard& card) { card.qpNums[0] = 0; },
      [](IbCard& card) { card.qpNums[0] = 1 << 24; },
      [](IbCard& card) { card.psn = 1 << 24; },
      [](IbCard& card) { card.mtu = 0; },
      [](IbCard& card) { card.mtu = 6; },
      [](IbCard& card) { card.lid = 1 << 16; },
      [](IbCard& card) { card.reads = 0; },
      [](IbCard& card) { card.reads = 17; },
      [](IbCard& card) { card.ringBytes = 0; },
      [](IbCard& card) { card.ringBytes = 1ull << 40; },
  };
  EXPECT_EQ(whyInvalid(liar_->card), nullptr);
  for (const auto& lie : lies) {
    IbCard card = liar_->card;
    lie(card);
    EXPECT_NE(whyInvalid(card), nullptr) << &lie - lies;
  }
  IbCard card = liar_->card;
  card.ways = UINT32_MAX;
  sayCard(card);
  expectLost("it sent a card with devices that cannot be");
}

TEST_F(RdmaHostile, WhoLosesEveryRailIsOfferedNoMoreThanItHasDevices) {
  liar_->card.ways = 3;
  int cards = 1;
  for (; cards < 10; ++cards) {
    sayCard(liar_->card);
    hear(FrameType::Connected);
    say(frame(FrameType::Lost, 0));
    hear(FrameType::Lost);
    if (cards == 3) break;
    hear(FrameType::Card, &liar_->theirs);
  }
  say(frame(FrameType::Lost, 0));
  until([&] {
    return transport_->pathTo(1).find("has failed at the other end") != std::string::npos;
  });
  transport_->poll();
  std::byte more;
  EXPECT_EQ(readSome(socket_, {&more, 1}).end, IoResult::End::WouldBlock) << "another card";
  EXPECT_EQ(error_, nullptr);
}

TEST_F(RdmaHostile, ACardWithOtherSettingsStaysOnTcp) {
  IbCard card = liar_->card;
  card.qps = 2;
  card.qpNums[1] = card.qpNums[0] + 1;
  sayCard(card);
  until([&] { return transport_->pathTo(1).find("number of queue pairs") != std::string::npos; });
  EXPECT_EQ(error_, nullptr);
}

TEST_F(RdmaHostile, ACardThatComesTwiceEndsTheConnection) {
  sayCard(liar_->card);
  sayCard(liar_->card);
  expectLost("it sent a card twice");
}

TEST_F(RdmaHostile, AWordBeyondWhatWasSentEndsTheConnection) {
  switchToRdma();
  const uint64_t beyond = 1ull << 40;
  liar_->write(IBV_WR_RDMA_WRITE, &beyond, sizeof beyond, liar_->theirs.word);
  const std::byte byte{1};
  const auto sent = transport_->send({kMessageQueue, 0, 1}, 1, &byte, 1, {});
  expectLost("it gave back more than it was sent");
}

TEST_F(RdmaHostile, AFrameThatCannotBeEndsTheConnection) {
  switchToRdma();
  liar_->writeFrame(frame(static_cast<FrameType>(99), 0));
  expectLost("it sent a frame of an unknown type");
}

TEST_F(RdmaHostile, AFrameBeyondItsPayloadEndsTheConnection) {
  switchToRdma();
  FrameHeader lie = frame(FrameType::Data, kFrameBytes, 1ull << 63);
  liar_->writeFrame(lie);
  expectLost("it sent");
}

TEST_F(RdmaHostile, ANoticeThatCannotComeEndsTheConnection) {
  switchToRdma();
  const FrameHeader good = frame(FrameType::Opened, 0);
  liar_->write(IBV_WR_RDMA_WRITE_WITH_IMM, &good, sizeof good, liar_->theirs.ring + liar_->written,
               FragmentMark::pack(100'000, true));
  expectLost("it sent a notice that cannot come");
}

/// A key that is none is what a peer has, too, whose region was deregistered meanwhile.
TEST_F(RdmaHostile, AWriteBeyondTheRingFailsAndThePairGoesOn) {
  switchToRdma();
  const uint64_t word = 1;
  liar_->write(IBV_WR_RDMA_WRITE, &word, sizeof word, liar_->theirs.word + 4096);
  hear(FrameType::Lost);
  say(frame(FrameType::Lost, 0, sizeof(FrameHeader)));
  until([&] { return transport_->pathTo(1).starts_with("TCP: RDMA over standin_0:1 has failed"); });
  EXPECT_EQ(error_, nullptr);
}

}  // namespace
}  // namespace ctran::testing
