// Operations of queue pairs on soft-RoCE, between two threads and between two processes.

#include <algorithm>
#include <cstring>

#include "tests/rdma/peers.h"

namespace ibverbx {
namespace {

// Many packets, and no multiple of a packet.
constexpr uint32_t kLarge = 100'003;

std::vector<uint8_t> pattern(size_t bytes) {
  std::vector<uint8_t> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<uint8_t>(1 + i % 251);
  return made;
}

/// In place: what is registered stays where it is.
void fill(Peer& peer, const std::vector<uint8_t>& bytes) {
  std::copy(bytes.begin(), bytes.end(), peer.memory.begin());
}

class RdmaOperationsTest : public ::testing::TestWithParam<Where> {};

TEST_P(RdmaOperationsTest, WriteArrivesWhole) {
  between(
      GetParam(),
      [](Channel& channel) {
        Peer a(channel, kLarge + 2);
        fill(a, pattern(a.memory.size()));
        const ibv_wc wc = a.complete(a.request(IBV_WR_RDMA_WRITE, 1, kLarge));
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
        EXPECT_EQ(wc.wr_id, 7u);
        EXPECT_EQ(wc.qp_num, a.qp.qpNum());
        channel.meet();
      },
      [](Channel& channel) {
        Peer b(channel, kLarge + 2);
        channel.meet();
        std::vector<uint8_t> expected = pattern(b.memory.size());
        expected.front() = expected.back() = 0;
        EXPECT_EQ(b.memory, expected);
      });
}

TEST_P(RdmaOperationsTest, ImmediateTakesAReceiveAndComesAfterItsData) {
  between(
      GetParam(),
      [](Channel& channel) {
        Peer a(channel, kLarge);
        fill(a, pattern(kLarge));
        ibv_send_wr wr = a.request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, kLarge);
        wr.imm_data = 0x01020304;
        EXPECT_EQ(a.complete(wr).status, IBV_WC_SUCCESS);
        wr = a.request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0);
        EXPECT_EQ(a.complete(wr).status, IBV_WC_SUCCESS) << "without data";
        channel.meet();
      },
      [](Channel& channel) {
        Peer b(channel, kLarge);
        b.receive();
        b.receive();
        const ibv_wc wc = next(b.side.recvCq);
        EXPECT_EQ(b.memory, pattern(kLarge));
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EXPECT_EQ(wc.imm_data, 0x01020304u);
        EXPECT_EQ(wc.byte_len, kLarge);
        EXPECT_TRUE(wc.wc_flags & IBV_WC_WITH_IMM);
        EXPECT_EQ(wc.wr_id, 11u);
        EXPECT_EQ(next(b.side.recvCq).byte_len, 0u);
        channel.meet();
      });
}

TEST_P(RdmaOperationsTest, SendIsScatteredIntoTheReceive) {
  between(
      GetParam(),
      [](Channel& channel) {
        Peer a(channel);
        fill(a, pattern(a.memory.size()));
        channel.meet();
        ibv_send_wr wr = a.request(IBV_WR_SEND_WITH_IMM, 0, 300);
        wr.imm_data = 5;
        EXPECT_EQ(a.complete(wr).opcode, IBV_WC_SEND);
        channel.meet();
      },
      [](Channel& channel) {
        Peer b(channel);
        const auto base = reinterpret_cast<uint64_t>(b.memory.data());
        ibv_sge parts[] = {{base, 100, b.mr.lkey()}, {base + 1000, 1000, b.mr.lkey()}};
        ibv_recv_wr wr{3, nullptr, parts, 2}, *bad = nullptr;
        must(b.qp.postRecv(&wr, &bad));
        channel.meet();
        const ibv_wc wc = next(b.side.recvCq);
        EXPECT_EQ(wc.opcode, IBV_WC_RECV);
        EXPECT_EQ(wc.byte_len, 300u);
        EXPECT_EQ(wc.imm_data, 5u);
        const std::vector<uint8_t> sent = pattern(300);
        EXPECT_TRUE(std::equal(sent.begin(), sent.begin() + 100, b.memory.begin()));
        EXPECT_TRUE(std::equal(sent.begin() + 100, sent.end(), b.memory.begin() + 1000));
        EXPECT_EQ(b.memory[100], 0);
        EXPECT_EQ(b.memory[1200], 0);
        channel.meet();
      });
}

TEST_P(RdmaOperationsTest, ReadBringsWhatIsThere) {
  between(
      GetParam(),
      [](Channel& channel) {
        Peer a(channel, kLarge + 2);
        channel.meet();
        const ibv_wc wc = a.complete(a.request(IBV_WR_RDMA_READ, 1, kLarge));
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
        std::vector<uint8_t> expected = pattern(a.memory.size());
        expected.front() = expected.back() = 0;
        EXPECT_EQ(a.memory, expected);
        channel.meet();
      },
      [](Channel& channel) {
        Peer b(channel, kLarge + 2);
        fill(b, pattern(b.memory.size()));
        channel.meet();
        channel.meet();
      });
}

TEST_P(RdmaOperationsTest, AtomicsBringWhatWasThere) {
  constexpr uint64_t kTimes = 50;
  const auto role = [](bool first) {
    return [first](Channel& channel) {
      Peer self(channel);
      uint64_t last = 0;
      for (uint64_t i = 0; i < kTimes; ++i) {
        ibv_send_wr wr = self.request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 8);
        wr.wr.atomic.remote_addr = self.remote.address;
        wr.wr.atomic.rkey = self.remote.rkey;
        wr.wr.atomic.compare_add = 3;
        const ibv_wc wc = self.complete(wr);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
        std::memcpy(&last, self.memory.data() + 8, 8);
        EXPECT_EQ(last, 3 * i);
      }
      channel.meet();
      ibv_send_wr wr = self.request(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 8);
      wr.wr.atomic.remote_addr = self.remote.address;
      wr.wr.atomic.rkey = self.remote.rkey;
      wr.wr.atomic.compare_add = first ? 3 * kTimes : 1;  // the second finds another value
      wr.wr.atomic.swap = 77;
      EXPECT_EQ(self.complete(wr).opcode, IBV_WC_COMP_SWAP);
      channel.meet();
      std::memcpy(&last, self.memory.data() + 8, 8);
      EXPECT_EQ(last, 3 * kTimes) << "what was there before";
      std::memcpy(&last, self.memory.data(), 8);
      EXPECT_EQ(last, first ? 3 * kTimes : 77u);
    };
  };
  between(GetParam(), role(true), role(false));
}

TEST_P(RdmaOperationsTest, CompletionsKeepTheOrderOfPosting) {
  constexpr uint32_t kBytes = 1500;
  constexpr uint64_t kDepth = 64;
  between(
      GetParam(),
      [](Channel& channel) {
        Peer a(channel, kDepth * kBytes);
        fill(a, pattern(a.memory.size()));
        for (uint64_t i = 0; i < kDepth; ++i) {
          ibv_send_wr wr = a.request(IBV_WR_RDMA_WRITE, i * kBytes, kBytes);
          wr.wr_id = i;
          must(a.post(wr));
        }
        for (uint64_t i = 0; i < kDepth; ++i) {
          const ibv_wc wc = next(a.side.sendCq);
          EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
          EXPECT_EQ(wc.wr_id, i);
        }
        channel.meet();
      },
      [](Channel& channel) {
        Peer b(channel, kDepth * kBytes);
        channel.meet();
        EXPECT_EQ(b.memory, pattern(b.memory.size()));
      });
}

INSTANTIATE_TEST_SUITE_P(Between, RdmaOperationsTest,
                         ::testing::Values(Where::SameProcess, Where::OtherProcess),
                         [](const auto& info) {
                           return info.param == Where::SameProcess ? "Threads" : "Processes";
                         });

}  // namespace
}  // namespace ibverbx
