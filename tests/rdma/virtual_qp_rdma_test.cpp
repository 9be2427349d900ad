// Virtual queue pairs on soft-RoCE: the schedules of tests/unit/verbs, and two processes.

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <tuple>

#include "tests/rdma/peers.h"
#include "tests/rdma/system.h"
#include "tests/unit/verbs/schedule.h"

namespace ibverbx {
namespace {

using Clock = std::chrono::steady_clock;
using Shape = std::tuple<LoadBalancingScheme, uint32_t>;

constexpr size_t kMessages = 40;
constexpr uint32_t kSlot = 300'000;  ///< the largest message

/// A virtual queue pair with registered memory, connected with that of the other process.
struct VirtualPeer {
  VirtualPeer(Channel& to, const IbvVirtualQpConfig& config, size_t bytes)
      : end(0, config, 2),
        memory(bytes),
        mr(must(end.pd.regMr(memory.data(), bytes, kAllAccess))),
        channel(to) {
    remote = channel.exchange<Remote>(
        {end.gid.gid, mr.rkey(), reinterpret_cast<uint64_t>(memory.data())});
    IbvVirtualQpBusinessCard card = end.qp->businessCard();
    for (uint32_t& number : card.qpNums) number = channel.exchange(number);
    IbvRtsOptions rts;  // seven times 67 ms of silence
    must(end.qp->connect(card, end.pathTo(remote.gid), rts));
    channel.meet();
  }

  Maybe post(ibv_wr_opcode opcode, uint64_t id, size_t offset, uint32_t bytes) {
    ibv_sge sge{reinterpret_cast<uint64_t>(memory.data()) + offset, bytes, mr.lkey()};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = bytes > 0;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = remote.address + offset;
    wr.wr.rdma.rkey = remote.rkey;
    return end.qp->postSend(&wr, &bad);
  }
  void receive(uint64_t id) {
    ibv_recv_wr wr{id, nullptr, nullptr, 0}, *bad = nullptr;
    must(end.qp->postRecv(&wr, &bad));
  }
  static ibv_wc next(IbvVirtualCq& cq) {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    for (;;) {
      const std::vector<ibv_wc> got = cq.pollCq(1);
      if (!got.empty()) return got[0];
      if (Clock::now() > deadline) throw std::runtime_error("no completion comes");
      ::sched_yield();
    }
  }

  struct Remote {
    ibv_gid gid;
    uint32_t rkey;
    uint64_t address;
  };
  End end;
  std::vector<uint8_t> memory;
  IbvMr mr;
  Channel& channel;
  Remote remote{};
};

class RdmaVirtualQpTest : public ::testing::TestWithParam<Shape> {
 protected:
  static IbvVirtualQpConfig config() {
    IbvVirtualQpConfig made;
    std::tie(made.scheme, made.numQps) = GetParam();
    made.maxFragmentsPerQp = 16;
    made.maxFragmentBytes = 20'000;
    return made;
  }
  /// How long the messages are that the sender of `seed` sends.
  static std::vector<uint32_t> lengths(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<uint32_t> made(kMessages);
    for (uint32_t& length : made) {
      length = static_cast<uint32_t>(random() % (random() % 4 ? 3000 : kSlot));
    }
    return made;
  }
  static uint8_t byteOf(size_t message, size_t at) {
    return static_cast<uint8_t>(1 + (message * 37 + at) % 251);
  }
};

TEST_P(RdmaVirtualQpTest, EveryScheduleGivesTheSame) {
  Fabric fabric{.deviceOfA = 0, .deviceOfB = 0, .scale = 40, .adjust = {}};
  fabric.adjust = [](IbvVirtualQpConfig& config) {
    std::tie(config.scheme, config.numQps) = GetParam();
  };
  for (uint64_t seed = 1; seed <= 15 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(fabric, seed, false);
    schedule.run();
    EXPECT_FALSE(schedule.failed());
  }
}

TEST_P(RdmaVirtualQpTest, AWrongKeyAtAnyMessageEndsEverything) {
  Fabric fabric{.deviceOfA = 0, .deviceOfB = 0, .scale = 40, .adjust = {}};
  fabric.adjust = [](IbvVirtualQpConfig& config) {
    std::tie(config.scheme, config.numQps) = GetParam();
  };
  int failed = 0;
  for (uint64_t seed = 1; seed <= 10 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(fabric, seed, true);
    schedule.run();
    failed += schedule.failed();
  }
  EXPECT_GT(failed, 5);  // an empty write needs no key
}

TEST_P(RdmaVirtualQpTest, MessagesOfAnotherProcessArriveWholeAndInOrder) {
  between(
      Where::OtherProcess,
      [](Channel& channel) {
        VirtualPeer a(channel, config(), kMessages * kSlot);
        const std::vector<uint32_t> length = lengths(1);
        for (size_t m = 0; m < kMessages; ++m) {
          for (size_t i = 0; i < length[m]; ++i) a.memory[m * kSlot + i] = byteOf(m, i);
          must(a.post(IBV_WR_RDMA_WRITE_WITH_IMM, m, m * kSlot, length[m]));
        }
        for (size_t m = 0; m < kMessages; ++m) {
          const ibv_wc wc = VirtualPeer::next(a.end.sendCq);
          ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
          ASSERT_EQ(wc.wr_id, m);
        }
        EXPECT_TRUE(a.end.sendCq.pollCq(1).empty()) << "one completion per message";
        channel.meet();
      },
      [](Channel& channel) {
        VirtualPeer b(channel, config(), kMessages * kSlot);
        const std::vector<uint32_t> length = lengths(1);
        for (size_t m = 0; m < kMessages; ++m) b.receive(m);
        for (size_t m = 0; m < kMessages; ++m) {
          const ibv_wc wc = VirtualPeer::next(b.end.recvCq);
          ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
          ASSERT_EQ(wc.wr_id, m);
          size_t wrong = 0;
          for (size_t i = 0; i < kSlot; ++i) {
            const uint8_t expected = i < length[m] ? byteOf(m, i) : 0;
            wrong += b.memory[m * kSlot + i] != expected;
          }
          ASSERT_EQ(wrong, 0u) << "bytes of message " << m << " of " << length[m];
        }
        channel.meet();
        EXPECT_TRUE(b.end.recvCq.pollCq(1).empty()) << "one notice per message";
      });
}

TEST_P(RdmaVirtualQpTest, ReadsBringAllBytes) {
  between(
      Where::OtherProcess,
      [](Channel& channel) {
        VirtualPeer a(channel, config(), kSlot);
        channel.meet();
        must(a.post(IBV_WR_RDMA_READ, 3, 0, kSlot));
        const ibv_wc wc = VirtualPeer::next(a.end.sendCq);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
        size_t wrong = 0;
        for (size_t i = 0; i < kSlot; ++i) wrong += a.memory[i] != byteOf(9, i);
        EXPECT_EQ(wrong, 0u);
        channel.meet();
      },
      [](Channel& channel) {
        VirtualPeer b(channel, config(), kSlot);
        for (size_t i = 0; i < kSlot; ++i) b.memory[i] = byteOf(9, i);
        channel.meet();
        channel.meet();
      });
}

TEST_P(RdmaVirtualQpTest, KilledReceiverEndsEverythingInTime) {
  Victim victim([](Channel& channel) {
    VirtualPeer b(channel, config(), kSlot);
    b.receive(0);
    VirtualPeer::next(b.end.recvCq);
    channel.meet();
    channel.meet();  // until it is killed
  });
  VirtualPeer a(victim.channel(), config(), kSlot);
  must(a.post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, kSlot));
  EXPECT_EQ(VirtualPeer::next(a.end.sendCq).status, IBV_WC_SUCCESS);
  victim.channel().meet();
  victim.kill();
  const auto start = Clock::now();
  for (uint64_t m = 1; m <= 5; ++m) must(a.post(IBV_WR_RDMA_WRITE_WITH_IMM, m, 0, kSlot));
  for (uint64_t m = 1; m <= 5; ++m) {
    const ibv_wc wc = VirtualPeer::next(a.end.sendCq);
    EXPECT_EQ(wc.wr_id, m);
    EXPECT_EQ(wc.status, m == 1 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_LT(secondsSince(start), 10);
  EXPECT_TRUE(a.end.qp->failed());
}

TEST_P(RdmaVirtualQpTest, AnEndThatHasFailedEndsTheOtherInTime) {
  between(
      Where::OtherProcess,
      [](Channel& channel) {
        VirtualPeer a(channel, config(), kSlot);
        channel.meet();  // the other end is in ERR
        const auto start = Clock::now();
        for (uint64_t m = 0; m < 3; ++m) must(a.post(IBV_WR_RDMA_WRITE_WITH_IMM, m, 0, kSlot));
        for (uint64_t m = 0; m < 3; ++m) {
          const ibv_wc wc = VirtualPeer::next(a.end.sendCq);
          EXPECT_EQ(wc.wr_id, m);
          EXPECT_NE(wc.status, IBV_WC_SUCCESS);
        }
        EXPECT_LT(secondsSince(start), 10);
        channel.meet();
      },
      [](Channel& channel) {
        VirtualPeer b(channel, config(), kSlot);
        b.receive(5);
        b.end.qp->fail();
        const ibv_wc wc = VirtualPeer::next(b.end.recvCq);
        EXPECT_EQ(wc.wr_id, 5u);
        EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        channel.meet();
        channel.meet();
        const auto written = [](uint8_t byte) { return byte != 0; };
        EXPECT_TRUE(std::none_of(b.memory.begin(), b.memory.end(), written));
      });
}

TEST_P(RdmaVirtualQpTest, LinkThatIsDownEndsEverythingInTime) {
  between(
      Where::OtherProcess,
      [](Channel& channel) {
        VirtualPeer a(channel, config(), kSlot);
        must(a.post(IBV_WR_RDMA_WRITE, 0, 0, kSlot));
        EXPECT_EQ(VirtualPeer::next(a.end.sendCq).status, IBV_WC_SUCCESS);
        shell("ip link set dev roce0 down");
        const auto start = Clock::now();
        for (uint64_t m = 1; m <= 3; ++m) must(a.post(IBV_WR_RDMA_WRITE, m, 0, kSlot));
        for (uint64_t m = 1; m <= 3; ++m) {
          const ibv_wc wc = VirtualPeer::next(a.end.sendCq);
          EXPECT_EQ(wc.wr_id, m);
          EXPECT_NE(wc.status, IBV_WC_SUCCESS);
        }
        EXPECT_LT(secondsSince(start), 10);
        shell("ip link set dev roce0 up");
        nextEvent(a.end.context, IBV_EVENT_PORT_ACTIVE);
        channel.meet();
      },
      [](Channel& channel) {
        VirtualPeer b(channel, config(), kSlot);
        // DQPLB needs the receiver's polls: what it gives is nothing, as no message notifies.
        channel.meetWhile([&] { EXPECT_TRUE(b.end.recvCq.pollCq(1).empty()); });
      });
}

INSTANTIATE_TEST_SUITE_P(
    Over, RdmaVirtualQpTest,
    ::testing::Combine(::testing::Values(LoadBalancingScheme::DQPLB, LoadBalancingScheme::SPRAY),
                       ::testing::Values(1u, 2u, 4u, 8u)),
    [](const auto& info) {
      const bool sprays = std::get<0>(info.param) == LoadBalancingScheme::SPRAY;
      return (sprays ? "Spray" : "Dqplb") + std::to_string(std::get<1>(info.param));
    });

}  // namespace
}  // namespace ibverbx
