// The verbs' structures as the real libibverbs and a kernel fill them: each field that is read here
// is also known from elsewhere.

#include <dlfcn.h>
#include <net/if.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "tests/rdma/peers.h"
#include "tests/rdma/system.h"

namespace ibverbx {
namespace {

TEST(RdmaDevicesTest, LibraryIsTheSystemsAndHasItAll) {
  const VerbsLibrary& verbs = VerbsLibrary::get();
  Dl_info from{};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(verbs.create_qp), &from), 0);
  EXPECT_NE(std::string(from.dli_fname).find("/libibverbs.so.1"), std::string::npos);
  EXPECT_EQ(std::string(from.dli_fname).find("standins"), std::string::npos);
#define CTRAN_THERE(name, ...) EXPECT_NE(verbs.name, nullptr) << #name;
  CTRAN_VERBS_FUNCTIONS(CTRAN_THERE)
  CTRAN_VERBS_OPTIONAL_FUNCTIONS(CTRAN_THERE)
#undef CTRAN_THERE
  EXPECT_NE(verbs.query_gid_ex, nullptr);
  EXPECT_STREQ(verbs.wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(verbs.event_type_str(IBV_EVENT_PORT_ERR), "port error");
}

TEST(RdmaDevicesTest, DeviceIsWhatTheKernelSaysOfIt) {
  auto devices = must(IbvDevice::ibvGetDeviceList());
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_STREQ(devices[0].name(), "rxe0");
  const IbvContext context = must(devices[0].open());
  const ibv_device& device = *context.context()->device;
  EXPECT_EQ(device.node_type, IBV_NODE_CA);
  EXPECT_EQ(device.transport_type, IBV_TRANSPORT_IB);
  EXPECT_STREQ(device.ibdev_path, "/sys/class/infiniband/rxe0");
  EXPECT_EQ(std::strncmp(device.dev_name, "uverbs", 6), 0) << device.dev_name;
  EXPECT_EQ(context.context()->async_fd, context.asyncFd());
  EXPECT_GE(context.context()->num_comp_vectors, 1);

  const ibv_device_attr& limits = context.attributes();
  char guid[20];
  const auto* bytes = reinterpret_cast<const uint8_t*>(&limits.node_guid);
  std::snprintf(guid, sizeof guid, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", bytes[0], bytes[1],
                bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]);
  EXPECT_EQ(sysfs(context, "node_guid"), guid);
  EXPECT_EQ(limits.phys_port_cnt, 1);
  EXPECT_EQ(limits.atomic_cap, IBV_ATOMIC_HCA);
  // The values of rdma_rxe, which have not changed for years.
  EXPECT_EQ(limits.max_qp_rd_atom, 128);
  EXPECT_EQ(limits.max_qp_init_rd_atom, 128);
  EXPECT_EQ(limits.max_sge, 32);
  EXPECT_EQ(limits.max_pkeys, 64);
}

TEST(RdmaDevicesTest, PortIsWhatTheKernelSaysOfIt) {
  const Side side;
  const ibv_port_attr port = must(side.context.queryPort(1));
  EXPECT_EQ(sysfs(side.context, "ports/1/state"), std::to_string(port.state) + ": ACTIVE");
  EXPECT_EQ(sysfs(side.context, "ports/1/phys_state"),
            std::to_string(port.phys_state) + ": LinkUp");
  EXPECT_EQ(sysfs(side.context, "ports/1/link_layer"), "Ethernet");
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.lid, 0);
  EXPECT_EQ(port.active_mtu, IBV_MTU_1024) << "the largest that fits into veth's 1500";
  EXPECT_EQ(port.max_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.max_msg_sz, 0x800000u);
  EXPECT_EQ(port.gid_tbl_len, 1024);
  const auto second = side.context.queryPort(2);
  ASSERT_TRUE(second.hasError());
  EXPECT_NE(second.error().errStr.find("port 2 of rxe0, which has 1"), std::string::npos);
}

TEST(RdmaDevicesTest, GidsAreThoseOfTheNetworkDevice) {
  const Side side;
  for (int i = 0; i < 2; ++i) {
    const ibv_gid_entry gid = must(side.context.queryGid(1, i));
    const uint8_t* raw = gid.gid.raw;
    std::string text;
    for (int byte = 0; byte < 16; byte += 2) {
      char part[8];
      std::snprintf(part, sizeof part, "%s%02x%02x", byte ? ":" : "", raw[byte], raw[byte + 1]);
      text += part;
    }
    const std::string index = std::to_string(i);
    EXPECT_EQ(text, sysfs(side.context, "ports/1/gids/" + index));
    EXPECT_EQ(sysfs(side.context, "ports/1/gid_attrs/types/" + index), "RoCE v2");
    EXPECT_EQ(gid.gid_type, IBV_GID_TYPE_ROCE_V2);
    EXPECT_EQ(gid.gid_index, static_cast<uint32_t>(i));
    EXPECT_EQ(gid.port_num, 1u);
    EXPECT_EQ(gid.ndev_ifindex, ::if_nametoindex("roce0"));
  }
  EXPECT_EQ(side.gid.gid_index, 1u) << "the one with an IPv4 address";
}

TEST(RdmaDevicesTest, GidThatIsNotThereIsAnError) {
  const Side side;
  for (const int index : {2, 1023, 1024, 100'000, -1}) {
    const auto gid = side.context.queryGid(1, index);
    ASSERT_TRUE(gid.hasError()) << index;
    EXPECT_NE(gid.error().errStr.find("GID " + std::to_string(index)), std::string::npos);
  }
}

TEST(RdmaDevicesTest, QueuePairHasWhatItWasGiven) {
  Side side;
  IbvQp qp = side.makeQp(10, 20);
  EXPECT_GE(qp.capacity().max_send_wr, 10u);
  EXPECT_GE(qp.capacity().max_recv_wr, 20u);
  EXPECT_GE(qp.capacity().max_inline_data, 64u);
  const auto query = [&] {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    EXPECT_EQ(VerbsLibrary::get().query_qp(qp.qp(), &attributes, IBV_QP_STATE, &initial), 0);
    EXPECT_EQ(initial.qp_type, IBV_QPT_RC);
    EXPECT_EQ(initial.send_cq, side.sendCq.cq());
    EXPECT_EQ(initial.recv_cq, side.recvCq.cq());
    return attributes;
  };
  EXPECT_EQ(query().qp_state, IBV_QPS_RESET);
  must(qp.init(1, IBV_ACCESS_REMOTE_WRITE));
  EXPECT_EQ(query().qp_state, IBV_QPS_INIT);
  EXPECT_EQ(query().port_num, 1);
  EXPECT_EQ(query().qp_access_flags & kAllAccess, unsigned{IBV_ACCESS_REMOTE_WRITE});
  IbvRtrOptions rtr = side.pathTo(side.gid.gid);
  rtr.remoteQpNum = qp.qpNum();
  rtr.psn = 0x123456;
  rtr.mtu = IBV_MTU_512;
  rtr.maxDestReadAtomic = 4;
  rtr.minRnrTimer = 9;
  rtr.trafficClass = 0x60;
  must(qp.toRtr(rtr));
  ibv_qp_attr got = query();
  EXPECT_EQ(got.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(got.rq_psn, 0x123456u);
  EXPECT_EQ(got.path_mtu, IBV_MTU_512);
  EXPECT_EQ(got.dest_qp_num, qp.qpNum());
  EXPECT_EQ(got.max_dest_rd_atomic, 4);
  EXPECT_EQ(got.min_rnr_timer, 9);
  EXPECT_EQ(got.ah_attr.is_global, 1);
  EXPECT_EQ(got.ah_attr.port_num, 1);
  EXPECT_EQ(got.ah_attr.grh.sgid_index, 1);
  EXPECT_EQ(got.ah_attr.grh.traffic_class, 0x60);
  EXPECT_EQ(std::memcmp(&got.ah_attr.grh.dgid, &side.gid.gid, 16), 0);
  must(qp.toRts({.timeout = 17, .retryCount = 5, .rnrRetry = 3, .psn = 77, .maxReadAtomic = 8}));
  got = query();
  EXPECT_EQ(got.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(got.timeout, 17);
  EXPECT_EQ(got.retry_cnt, 5);
  EXPECT_EQ(got.rnr_retry, 3);
  EXPECT_EQ(got.sq_psn, 77u);
  EXPECT_EQ(got.max_rd_atomic, 8);
  must(qp.toError());
  EXPECT_EQ(query().qp_state, IBV_QPS_ERR);
}

TEST(RdmaDevicesTest, StatesHaveAnOrder) {
  Side side;
  IbvQp qp = side.makeQp();
  EXPECT_TRUE(qp.toRts({}).hasError());
  must(qp.init(1, kAllAccess));
  IbvRtrOptions nowhere = side.pathTo({});
  EXPECT_TRUE(qp.toRtr(nowhere).hasError()) << "no GID is all zeros";
  EXPECT_EQ(qp.state(), IBV_QPS_INIT) << "a step that was refused";
  side.connect(qp, qp.qpNum(), side.gid.gid);
  EXPECT_EQ(qp.state(), IBV_QPS_RTS);
}

TEST(RdmaDevicesTest, LimitsHoldAndOneBeyondThemIsRefusedByName) {
  Side side;
  const ibv_device_attr& limits = side.context.attributes();
  must(side.context.createCq(limits.max_cqe));
  const auto cq = side.context.createCq(limits.max_cqe + 1);
  ASSERT_TRUE(cq.hasError());
  EXPECT_NE(cq.error().errStr.find(std::to_string(limits.max_cqe)), std::string::npos);

  const auto create = [&](const ibv_qp_cap& cap) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = side.sendCq.cq();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = cap;
    const auto qp = side.pd.createQp(&attributes);
    return qp ? std::string() : qp.error().errStr;
  };
  const auto sges = static_cast<uint32_t>(limits.max_sge);
  EXPECT_EQ(create({16, 16, sges, sges, 0}), "");
  EXPECT_NE(create({16, 16, sges + 1, 1, 0}).find("max_send_sge"), std::string::npos);
  EXPECT_NE(create({16, 16, 1, sges + 1, 0}).find("max_recv_sge"), std::string::npos);
  const auto wrs = static_cast<uint32_t>(limits.max_qp_wr);
  EXPECT_NE(create({wrs + 1, 1, 1, 1, 0}).find("max_send_wr"), std::string::npos);
  EXPECT_NE(create({1, wrs + 1, 1, 1, 0}).find("max_recv_wr"), std::string::npos);

  IbvQp qp = side.makeQp();
  must(qp.init(1, kAllAccess));
  IbvRtrOptions rtr = side.pathTo(side.gid.gid);
  rtr.maxDestReadAtomic = static_cast<uint8_t>(limits.max_qp_rd_atom + 1);
  const Maybe refused = qp.toRtr(rtr);
  ASSERT_TRUE(refused.hasError());
  EXPECT_NE(refused.error().errStr.find("maxDestReadAtomic"), std::string::npos);
  rtr.maxDestReadAtomic = static_cast<uint8_t>(limits.max_qp_rd_atom);
  must(qp.toRtr(rtr));
}

TEST(RdmaDevicesTest, FullQueueSaysSoUntilItIsPolled) {
  Side side;
  IbvQp qp = side.makeQp(4, 4);
  side.connect(qp, qp.qpNum(), side.gid.gid);
  const auto post = [&] {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_SEND;  // nobody receives it
    wr.send_flags = IBV_SEND_SIGNALED;
    return qp.postSend(&wr, &bad);
  };
  uint32_t posted = 0;
  while (posted < 1000 && post()) ++posted;
  EXPECT_GE(posted, qp.capacity().max_send_wr);  // rdma_rxe has room for some more
  const Maybe full = post();
  ASSERT_TRUE(full.hasError());
  EXPECT_EQ(full.error().errNum, ENOMEM) << full.error().errStr;
  must(qp.toError());
  for (uint32_t i = 0; i < posted; ++i) EXPECT_EQ(next(side.sendCq).status, IBV_WC_WR_FLUSH_ERR);
}

TEST(RdmaDevicesTest, MemoryBeyondTheLimitOfLockedMemoryIsRefusedWithWhatToRaise) {
  between(
      Where::OtherProcess, [](Channel& channel) { channel.meet(); },
      [](Channel& channel) {
        const rlimit little{64 << 10, 64 << 10};
        ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &little), 0);
        ASSERT_EQ(::setuid(65534), 0) << "the limit is not root's";
        const IbvContext context = must(must(IbvDevice::ibvGetDeviceList()).at(0).open());
        const IbvPd pd = must(context.allocPd());
        std::vector<uint8_t> memory(1 << 20);
        const auto mr = pd.regMr(memory.data(), memory.size(), kAllAccess);
        ASSERT_TRUE(mr.hasError());
        EXPECT_NE(mr.error().errStr.find("ulimit -l"), std::string::npos) << mr.error().errStr;
        must(pd.regMr(memory.data(), 4096, kAllAccess));
        channel.meet();
      });
}

TEST(RdmaDevicesTest, MemoryThatIsNotThereIsRefused) {
  const Side side;
  const auto mr = side.pd.regMr(nullptr, 4096, kAllAccess);
  ASSERT_TRUE(mr.hasError());
  EXPECT_EQ(mr.error().errNum, EFAULT) << mr.error().errStr;
}

TEST(RdmaDevicesTest, DmabufThatTheDeviceCannotReachIsAnError) {
  const Side side;
  EXPECT_TRUE(side.pd.regDmabufMr(0, 4096, 0, STDIN_FILENO, kAllAccess).hasError());
}

}  // namespace
}  // namespace ibverbx
