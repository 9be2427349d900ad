// What fails on soft-RoCE, how it is said, and within which time.

#include <algorithm>
#include <chrono>

#include "tests/rdma/peers.h"
#include "tests/rdma/system.h"

namespace ibverbx {
namespace {

using Clock = std::chrono::steady_clock;

/// Waits until the other end is done with its own part.
void stay(Channel& channel) {
  Peer peer(channel);
  channel.meet();
  EXPECT_TRUE(std::all_of(peer.memory.begin(), peer.memory.end(), [](uint8_t b) { return !b; }))
      << "written";
}

/// What a request that is changed by `change` completes with; the one after it is flushed.
ibv_wc_status statusOf(const std::function<void(ibv_send_wr&)>& change,
                       unsigned remoteAccess = kAllAccess) {
  ibv_wc_status status = IBV_WC_SUCCESS;
  between(
      Where::OtherProcess,
      [&](Channel& channel) {
        Peer a(channel);
        std::fill(a.memory.begin(), a.memory.end(), 1);
        ibv_send_wr wr = a.request(IBV_WR_RDMA_WRITE, 0, 64);
        change(wr);
        status = a.complete(wr).status;
        const ibv_wc after = a.complete(a.request(IBV_WR_RDMA_WRITE, 0, 64));
        EXPECT_EQ(after.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(after.wr_id, 7u);
        channel.meet();
      },
      [&](Channel& channel) {
        Peer b(channel, 4096, remoteAccess);
        channel.meet();
        EXPECT_TRUE(std::all_of(b.memory.begin(), b.memory.end(), [](uint8_t x) { return x == 0; }))
            << "written";
      });
  return status;
}

TEST(RdmaFailuresTest, WrongKeyIsARemoteAccessError) {
  EXPECT_EQ(statusOf([](ibv_send_wr& wr) { wr.wr.rdma.rkey = ~wr.wr.rdma.rkey; }),
            IBV_WC_REM_ACCESS_ERR);
}

TEST(RdmaFailuresTest, BeyondTheRegionIsARemoteAccessError) {
  EXPECT_EQ(statusOf([](ibv_send_wr& wr) { wr.wr.rdma.remote_addr += 4096 - 63; }),
            IBV_WC_REM_ACCESS_ERR);
}

TEST(RdmaFailuresTest, WithoutTheRightToWriteIsARemoteAccessError) {
  EXPECT_EQ(statusOf([](ibv_send_wr&) {}, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
            IBV_WC_REM_ACCESS_ERR);
}

TEST(RdmaFailuresTest, WrongLocalKeyIsALocalError) {
  const ibv_wc_status status =
      statusOf([](ibv_send_wr& wr) { wr.sg_list->lkey = ~wr.sg_list->lkey; });
  // The second is what the standard asks for; Linux 6.1 says the first.
  EXPECT_TRUE(status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_LOC_PROT_ERR) << status;
}

TEST(RdmaFailuresTest, ErrorStateFlushesWhatIsPosted) {
  Side side;
  IbvQp qp = side.makeQp();
  must(qp.init(1, kAllAccess));
  for (uint64_t i = 0; i < 5; ++i) {
    ibv_recv_wr wr{i, nullptr, nullptr, 0}, *bad = nullptr;
    must(qp.postRecv(&wr, &bad));
  }
  side.connect(qp, qp.qpNum(), side.gid.gid);  // with itself
  must(qp.toError());
  for (uint64_t i = 0; i < 5; ++i) {
    const ibv_wc wc = next(side.recvCq);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, i);
  }
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 9;
  wr.send_flags = IBV_SEND_SIGNALED;
  must(qp.postSend(&wr, &bad));
  EXPECT_EQ(next(side.sendCq).status, IBV_WC_WR_FLUSH_ERR) << "posted in state ERR";
}

TEST(RdmaFailuresTest, ReceiverThatIsNotReadyIsNamed) {
  between(
      Where::OtherProcess,
      [](Channel& channel) {
        IbvRtsOptions rts;
        rts.rnrRetry = 2;
        Peer a(channel, 4096, kAllAccess, rts);
        const auto start = Clock::now();
        EXPECT_EQ(a.complete(a.request(IBV_WR_SEND, 0, 64)).status, IBV_WC_RNR_RETRY_EXC_ERR);
        EXPECT_LT(secondsSince(start), 5);
        channel.meet();
      },
      stay);
}

TEST(RdmaFailuresTest, LateReceiveIsWaitedFor) {
  between(
      Where::OtherProcess,
      [](Channel& channel) {
        Peer a(channel);  // rnrRetry 7 is for ever
        must(a.post(a.request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0)));
        channel.meet();
        EXPECT_EQ(next(a.side.sendCq).status, IBV_WC_SUCCESS);
      },
      [](Channel& channel) {
        Peer b(channel);
        channel.meet();
        b.receive();
        EXPECT_EQ(next(b.side.recvCq).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
      });
}

TEST(RdmaFailuresTest, KilledPeerEndsTheRetries) {
  // With the defaults of IbvRtsOptions: seven packets, 67 ms apart.
  Victim victim([](Channel& channel) {
    Peer b(channel);
    channel.meet();
    channel.meet();  // until it is killed
  });
  Peer a(victim.channel());
  EXPECT_EQ(a.complete(a.request(IBV_WR_RDMA_WRITE, 0, 64)).status, IBV_WC_SUCCESS);
  victim.channel().meet();
  victim.kill();
  const auto start = Clock::now();
  EXPECT_EQ(a.complete(a.request(IBV_WR_RDMA_WRITE, 0, 64)).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_LT(secondsSince(start), 5);
}

// An event, IBV_EVENT_QP_ACCESS_ERR, is what hardware gives besides; rdma_rxe does not.
TEST(RdmaFailuresTest, OwnerOfTheKeyHearsOfAViolationWhereItReceives) {
  between(
      Where::OtherProcess,
      [](Channel& channel) {
        Peer a(channel);
        channel.meet();
        ibv_send_wr wr = a.request(IBV_WR_RDMA_WRITE, 0, 64);
        wr.wr.rdma.rkey = ~wr.wr.rdma.rkey;
        EXPECT_EQ(a.complete(wr).status, IBV_WC_REM_ACCESS_ERR);
        channel.meet();
      },
      [](Channel& channel) {
        Peer b(channel);
        b.receive();
        channel.meet();
        channel.meet();
        EXPECT_NE(next(b.side.recvCq).status, IBV_WC_SUCCESS);
      });
}

TEST(RdmaFailuresTest, LinkThatIsDownIsSaid) {
  const auto down = [](Channel& channel) {
    Peer a(channel);
    EXPECT_EQ(a.complete(a.request(IBV_WR_RDMA_WRITE, 0, 64)).status, IBV_WC_SUCCESS);
    shell("ip link set dev roce0 down");
    const IbvAsyncEvent event = nextEvent(a.side.context, IBV_EVENT_PORT_ERR);
    EXPECT_EQ(event.port, 1);
    EXPECT_EQ(must(a.side.context.queryPort(1)).state, IBV_PORT_DOWN);
    const auto start = Clock::now();
    // rdma_rxe fails at once, where hardware retries first.
    const ibv_wc_status status = a.complete(a.request(IBV_WR_RDMA_WRITE, 0, 64)).status;
    EXPECT_TRUE(status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_RETRY_EXC_ERR) << status;
    EXPECT_LT(secondsSince(start), 5);
    channel.meet();
    shell("ip link set dev roce0 up");
    nextEvent(a.side.context, IBV_EVENT_PORT_ACTIVE);
    EXPECT_EQ(must(a.side.context.queryPort(1)).state, IBV_PORT_ACTIVE);
  };
  between(Where::OtherProcess, down, [](Channel& channel) {
    Peer b(channel);
    channel.meet();
  });
  // New connections work.
  between(
      Where::OtherProcess,
      [](Channel& channel) {
        Peer a(channel);
        EXPECT_EQ(a.complete(a.request(IBV_WR_RDMA_WRITE, 0, 64)).status, IBV_WC_SUCCESS);
        channel.meet();
      },
      [](Channel& channel) {
        Peer b(channel);
        channel.meet();
      });
}

}  // namespace
}  // namespace ibverbx
