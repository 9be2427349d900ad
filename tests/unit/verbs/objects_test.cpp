// The verbs' objects on the stand-in: what arrives, what is refused, what fails and how it is said.

#include "ctran/verbs/objects.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#include "ctran/base/error.h"
#include "tests/unit/verbs/verbs_fixture.h"

namespace ibverbx {
namespace {

/// Two connected queue pairs, each with registered memory.
struct Pair {
  explicit Pair(uint8_t rnrRetry = 7, int deviceOfB = 1) : b(deviceOfB) {
    must(qpA.init(1, kAllAccess));
    must(qpB.init(1, kAllAccess));
    IbvRtsOptions rts;
    rts.rnrRetry = rnrRetry;
    a.connect(qpA, qpB.qpNum(), b.gid.gid, rts);
    b.connect(qpB, qpA.qpNum(), a.gid.gid, rts);
    std::iota(memoryA.begin(), memoryA.end(), 1);
  }

  ibv_sge at(size_t offset, uint32_t bytes) {
    return {reinterpret_cast<uint64_t>(memoryA.data() + offset), bytes, mrA.lkey()};
  }

  /// A request from A's memory to the same place of B's.
  ibv_send_wr request(ibv_wr_opcode opcode, ibv_sge* sge) {
    ibv_send_wr wr{};
    wr.wr_id = 7;
    wr.sg_list = sge;
    wr.num_sge = sge ? 1 : 0;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(memoryB.data());
    wr.wr.rdma.rkey = mrB.rkey();
    return wr;
  }

  Maybe post(ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return qpA.postSend(&wr, &bad);
  }

  void receive(ibv_sge* sge = nullptr) {
    ibv_recv_wr wr{11, nullptr, sge, sge ? 1 : 0};
    ibv_recv_wr* bad = nullptr;
    must(qpB.postRecv(&wr, &bad));
  }

  /// The next completion of a queue; there must be one.
  static ibv_wc next(IbvCq& cq) {
    std::array<ibv_wc, 1> wc{};
    EXPECT_EQ(must(cq.pollCq(wc)), 1);
    return wc[0];
  }

  Side a, b;
  alignas(8) std::array<uint8_t, 256> memoryA{}, memoryB{};
  IbvMr mrA = must(a.pd.regMr(memoryA.data(), memoryA.size(), kAllAccess));
  IbvMr mrB = must(b.pd.regMr(memoryB.data(), memoryB.size(), kAllAccess));
  IbvQp qpA = a.makeQp(), qpB = b.makeQp();
};

using VerbsObjectsTest = VerbsTest;

TEST(VerbsLibraryTest, SaysWhatToInstall) {
  try {
    VerbsLibrary::load("libctran-nowhere.so");
    FAIL();
  } catch (const ctran::Error& error) {
    EXPECT_EQ(error.kind(), ctran::ErrorKind::Unsupported);
    EXPECT_NE(error.hint().find("rdma-core"), std::string::npos);
  }
}

TEST(VerbsLibraryTest, NamesWhatALibraryLacks) {
  try {
    VerbsLibrary::load("libc.so.6");
    FAIL();
  } catch (const ctran::Error& error) {
    EXPECT_NE(std::string(error.what()).find("ibv_open_device@IBVERBS_1.1"), std::string::npos);
  }
}

TEST(VerbsLibraryTest, TheRealOneHasItAll) {
  for (const char* path :
       {"/usr/lib/x86_64-linux-gnu/libibverbs.so.1", "/usr/lib/aarch64-linux-gnu/libibverbs.so.1",
        "/usr/lib64/libibverbs.so.1"}) {
    if (::access(path, R_OK) == 0) {
      EXPECT_NE(VerbsLibrary::load(path).create_qp, nullptr);
      return;
    }
  }
  GTEST_SKIP() << "no libibverbs.so.1 on this machine (Debian: libibverbs1)";
}

TEST_F(VerbsObjectsTest, DevicesSayWhatTheyAre) {
  auto devices = must(IbvDevice::ibvGetDeviceList());
  ASSERT_GE(devices.size(), 2u);
  EXPECT_STREQ(devices[0].name(), "standin_0");
  IbvContext context = must(devices[1].open());
  const ibv_port_attr port = must(context.queryPort(1));
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_TRUE(context.queryPort(2).hasError());
  const ibv_gid_entry gid = must(context.queryGid(1, 0));
  EXPECT_EQ(gid.gid_type, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(gid.gid.raw[15], 2);
  EXPECT_TRUE(context.queryGid(1, 5).hasError());
}

TEST_F(VerbsObjectsTest, LimitsAreNamed) {
  Side side;
  const auto cq = side.context.createCq(1 << 30);
  ASSERT_TRUE(cq.hasError());
  EXPECT_NE(cq.error().errStr.find("65536"), std::string::npos) << cq.error().errStr;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = side.sendCq.cq();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {1u << 20, 1, 1, 1, 0};
  const auto qp = side.pd.createQp(&attributes);
  ASSERT_TRUE(qp.hasError());
  EXPECT_NE(qp.error().errStr.find("max_send_wr"), std::string::npos) << qp.error().errStr;
  IbvQp made = side.makeQp();
  must(made.init(1, kAllAccess));
  IbvRtrOptions rtr;
  rtr.maxDestReadAtomic = 200;
  EXPECT_TRUE(made.toRtr(rtr).hasError());
}

TEST_F(VerbsObjectsTest, StatesHaveAnOrder) {
  Side side;
  IbvQp qp = side.makeQp();
  const Maybe early = qp.toRts({});
  ASSERT_TRUE(early.hasError());
  EXPECT_NE(early.error().errStr.find("from RTR to RTS"), std::string::npos);
  EXPECT_NE(early.error().errStr.find("in RESET"), std::string::npos);
  must(qp.init(1, kAllAccess));
  EXPECT_EQ(qp.state(), IBV_QPS_INIT);
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  EXPECT_TRUE(qp.postSend(&wr, &bad).hasError());
  EXPECT_EQ(bad, &wr);
}

TEST_F(VerbsObjectsTest, SendArrivesInTheReceive) {
  Pair pair;
  ibv_sge to{reinterpret_cast<uint64_t>(pair.memoryB.data()), 256, pair.mrB.lkey()};
  pair.receive(&to);
  ibv_sge from = pair.at(0, 100);
  ibv_send_wr wr = pair.request(IBV_WR_SEND_WITH_IMM, &from);
  wr.imm_data = 0x1234;
  must(pair.post(wr));
  const ibv_wc received = pair.next(pair.b.recvCq);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 11u);
  EXPECT_EQ(received.byte_len, 100u);
  EXPECT_EQ(received.imm_data, 0x1234u);
  EXPECT_EQ(pair.next(pair.a.sendCq).opcode, IBV_WC_SEND);
  EXPECT_EQ(std::memcmp(pair.memoryA.data(), pair.memoryB.data(), 100), 0);
  EXPECT_EQ(pair.memoryB[100], 0);
}

TEST_F(VerbsObjectsTest, WriteNeedsNoReceiveAndItsImmediateDoes) {
  Pair pair;
  ibv_sge from = pair.at(8, 32);
  must(pair.post(pair.request(IBV_WR_RDMA_WRITE, &from)));
  EXPECT_EQ(pair.next(pair.a.sendCq).opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(pair.memoryA.data() + 8, pair.memoryB.data(), 32), 0);
  must(pair.post(pair.request(IBV_WR_RDMA_WRITE_WITH_IMM, nullptr)));
  std::array<ibv_wc, 1> none;
  EXPECT_EQ(must(pair.a.sendCq.pollCq(none)), 0) << "nothing is posted to receive it";
  pair.receive();
  EXPECT_EQ(pair.next(pair.b.recvCq).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_SUCCESS);
}

TEST_F(VerbsObjectsTest, ReadAndAtomicsBringWhatWasThere) {
  Pair pair;
  pair.memoryB.fill(9);
  ibv_sge to = pair.at(0, 16);
  must(pair.post(pair.request(IBV_WR_RDMA_READ, &to)));
  EXPECT_EQ(pair.next(pair.a.sendCq).opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(pair.memoryA[15], 9);
  EXPECT_EQ(pair.memoryA[16], 17);

  uint64_t word = 40;
  std::memcpy(pair.memoryB.data(), &word, 8);
  ibv_sge fetched = pair.at(0, 8);
  for (const auto opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    ibv_send_wr wr = pair.request(opcode, &fetched);
    wr.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(pair.memoryB.data());
    wr.wr.atomic.rkey = pair.mrB.rkey();
    wr.wr.atomic.compare_add = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 2 : 42;
    wr.wr.atomic.swap = 5;
    must(pair.post(wr));
    EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_SUCCESS);
    std::memcpy(&word, pair.memoryA.data(), 8);
    EXPECT_EQ(word, opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 40u : 42u);
  }
  std::memcpy(&word, pair.memoryB.data(), 8);
  EXPECT_EQ(word, 5u);
}

TEST_F(VerbsObjectsTest, KeysBoundWhatIsReached) {
  Pair pair;
  ibv_sge from = pair.at(0, 32);
  ibv_send_wr beyond = pair.request(IBV_WR_RDMA_WRITE, &from);
  beyond.wr.rdma.remote_addr += 225;  // one byte too far
  must(pair.post(beyond));
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(pair.memoryB[255], 0);
  // Both ends are in ERR now, and B is told.
  must(pair.post(pair.request(IBV_WR_RDMA_WRITE, &from)));
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_WR_FLUSH_ERR);
  const auto event = must(pair.b.context.pollAsyncEvent());
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event->qpNum, pair.qpB.qpNum());
  EXPECT_FALSE(must(pair.b.context.pollAsyncEvent()).has_value());
}

TEST_F(VerbsObjectsTest, ForeignLocalKeyIsRefused) {
  Pair pair;
  ibv_sge from = pair.at(0, 32);
  from.lkey = pair.mrB.lkey();
  must(pair.post(pair.request(IBV_WR_RDMA_WRITE, &from)));
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(VerbsObjectsTest, ReceiverNotReadyEndsWhereItIsBounded) {
  Pair pair(2);
  must(pair.post(pair.request(IBV_WR_SEND, nullptr)));
  std::array<ibv_wc, 1> none;
  EXPECT_EQ(must(pair.a.sendCq.pollCq(none)), 0);
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(VerbsObjectsTest, PulledCableEndsTheRetries) {
  Pair pair;
  standIn->standInVerbsLink("standin_1", 0);
  EXPECT_EQ(must(pair.b.context.queryPort(1)).state, IBV_PORT_DOWN);
  must(pair.post(pair.request(IBV_WR_RDMA_WRITE, nullptr)));
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_RETRY_EXC_ERR);
  const auto event = must(pair.b.context.pollAsyncEvent());
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event->port, 1);
}

TEST_F(VerbsObjectsTest, RemovedDeviceFlushesAndSaysSo) {
  Pair pair;
  pair.receive();
  standIn->standInVerbsRemove("standin_1");
  EXPECT_EQ(pair.next(pair.b.recvCq).status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(must(pair.b.context.pollAsyncEvent())->type, IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(must(IbvDevice::ibvGetDeviceList()).size(), 1u);
}

TEST_F(VerbsObjectsTest, FullSendQueueSaysSoUntilItIsPolled) {
  Pair pair;
  const ibv_send_wr wr = pair.request(IBV_WR_RDMA_WRITE, nullptr);
  for (int i = 0; i < 64; ++i) must(pair.post(wr));
  const Maybe full = pair.post(wr);
  ASSERT_TRUE(full.hasError());
  EXPECT_EQ(full.error().errNum, ENOMEM);
  pair.next(pair.a.sendCq);
  must(pair.post(wr));
}

TEST_F(VerbsObjectsTest, FaultComesAtItsMoment) {
  Pair pair;
  standIn->standInVerbsFail(pair.qpA.qpNum(), 3, IBV_WC_RETRY_EXC_ERR);
  for (int i = 0; i < 4; ++i) must(pair.post(pair.request(IBV_WR_RDMA_WRITE, nullptr)));
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(VerbsObjectsTest, DmabufIsReachedByItsIova) {
  Pair pair;
  const int fd = ::memfd_create("dmabuf", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, 8192), 0);
  {
    IbvMr mr = must(pair.b.pd.regDmabufMr(4096, 4096, 0x10000, fd, kAllAccess));
    ibv_sge from = pair.at(0, 64);
    ibv_send_wr wr = pair.request(IBV_WR_RDMA_WRITE, &from);
    wr.wr.rdma.remote_addr = 0x10010;
    wr.wr.rdma.rkey = mr.rkey();
    must(pair.post(wr));
    EXPECT_EQ(pair.next(pair.a.sendCq).status, IBV_WC_SUCCESS);
  }
  uint8_t found[64];
  ASSERT_EQ(::pread(fd, found, sizeof found, 4096 + 16), 64);
  EXPECT_EQ(std::memcmp(found, pair.memoryA.data(), 64), 0);
  ::close(fd);
  EXPECT_TRUE(pair.b.pd.regDmabufMr(0, 4096, 0, -1, kAllAccess).hasError());
}

TEST_F(VerbsObjectsTest, ThreadsMayUseTheirOwnQueuePairs) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      Pair pair;
      for (int i = 0; i < 100; ++i) {
        ibv_sge from = pair.at(i, 16);
        must(pair.post(pair.request(IBV_WR_RDMA_WRITE, &from)));
        EXPECT_EQ(Pair::next(pair.a.sendCq).status, IBV_WC_SUCCESS);
        EXPECT_EQ(pair.memoryB[0], i + 1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(VerbsObjectsTest, MemoryBeyondTheDevicesLimitIsRefusedByTheLimit) {
  const Side side;
  const auto limit = side.context.attributes().max_mr_size;
  for (const auto& made : {side.pd.regMr(nullptr, limit + 1, 0),
                           side.pd.regDmabufMr(0, limit + 1, 0, -1, IBV_ACCESS_LOCAL_WRITE)}) {
    ASSERT_TRUE(made.hasError());
    EXPECT_NE(made.error().errStr.find("this device allows " + std::to_string(limit)),
              std::string::npos)
        << made.error().errStr;
  }
}

TEST_F(VerbsObjectsTest, ForkedChildDestroysNothingOfItsParents) {
  Pair pair;
  EXPECT_TRUE(standIn->standInVerbsForksSafe());
  const int objects = standIn->standInVerbsObjects();
  const pid_t child = ::fork();
  if (child == 0) {
    { const Pair gone = std::move(pair); }
    ::_exit(standIn->standInVerbsObjects() == objects ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ibverbx
