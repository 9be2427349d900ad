#include "ctran/rdma/rail.h"

#include <algorithm>

#include "ctran/os/process.h"

namespace ctran {

using namespace ibverbx;

namespace {

constexpr uint32_t kFragmentsPerQp = 64;
constexpr uint32_t kSmallBytes = 220;

uint32_t mtuCodeOf(const IbDevice& device) {
  uint32_t mtu = device.portAttributes().active_mtu;
  if (const uint32_t wanted = device.settings().mtuBytes) {
    while (mtu > IBV_MTU_256 && 128u << mtu > wanted) --mtu;
  }
  return mtu;
}

}  // namespace

Expected<std::unique_ptr<RdmaRail>> RdmaRail::open(const IbDevice& device, size_t index) {
  Expected<IbvCompChannel> channel = device.context().createCompChannel();
  if (!channel) return channel.error();
  std::unique_ptr<RdmaRail> rail(new RdmaRail(device, index, *std::move(channel)));
  const int entries = static_cast<int>(2 * kFragmentsPerQp * device.settings().numQps);
  Expected<IbvCq> cq = device.context().createCq(entries, 0, &rail->channel_);
  if (!cq) return cq.error();
  rail->watch_->device = index;
  rail->watch_->cq = cq->cq();
  std::vector<IbvCq> cqs;
  cqs.push_back(*std::move(cq));
  rail->cq_ = std::make_unique<IbvVirtualCq>(std::move(cqs));
  if (Maybe made = rail->makeQp(); !made) return made.error();
  for (uint32_t i = 0; i < kMessages; ++i) {
    if (Maybe posted = rail->postReceive(); !posted) return posted.error();
  }
  return rail;
}

Maybe RdmaRail::makeQp() {
  IbvVirtualQpConfig config;
  config.numQps = device_.settings().numQps;
  config.maxFragmentsPerQp = kFragmentsPerQp;
  config.maxMessages = kMessages;
  config.port = device_.port();
  config.maxFragmentBytes = std::min(config.maxFragmentBytes, device_.portAttributes().max_msg_sz);
  // Memory of GPUs cannot be read by the processor that makes work requests.
  config.maxInlineBytes = kSmallBytes;
  config.inlinesAll = false;
  auto qp = IbvVirtualQp::create(device_.context(), device_.pd(), *cq_, *cq_, config);
  if (!qp) return qp.error();
  qp_ = *std::move(qp);

  card_.device = static_cast<uint32_t>(index_);
  card_.gid = device_.gid().gid;
  card_.lid = device_.portAttributes().lid;
  card_.mtu = mtuCodeOf(device_);
  fillRandom(reinterpret_cast<std::byte*>(&card_.psn), sizeof card_.psn);
  card_.psn &= 0xffffff;
  card_.reads = static_cast<uint32_t>(
      std::clamp(device_.context().attributes().max_qp_rd_atom, 1, kMostReads));
  watch_->qpNums = card_.qpNums = qp_->businessCard().qpNums;
  return Unit{};
}

Maybe RdmaRail::connect(const RdmaCard::Rail& card) {
  if (card.qpNums.size() != card_.qpNums.size()) {
    return ibverbx::Error{EINVAL, "the peer has " + std::to_string(card.qpNums.size()) +
                                      " queue pairs for each device, and this process has " +
                                      std::to_string(card_.qpNums.size()) +
                                      ": set CTRAN_IB_QPS alike on both"};
  }
  const IbSettings& settings = device_.settings();
  IbvRtrOptions path;
  path.remoteGid = card.gid;
  path.remoteLid = static_cast<uint16_t>(card.lid);
  path.port = device_.port();
  path.gidIndex = static_cast<uint8_t>(device_.gid().gid_index);
  path.trafficClass = settings.trafficClass;
  path.serviceLevel = settings.serviceLevel;
  path.mtu = static_cast<ibv_mtu>(std::min(card.mtu, card_.mtu));
  path.psn = card.psn;
  path.maxDestReadAtomic = static_cast<uint8_t>(card_.reads);
  IbvRtsOptions rts;
  rts.timeout = settings.timeout;
  rts.retryCount = settings.retryCount;
  rts.psn = card_.psn;
  const int most = std::clamp(device_.context().attributes().max_qp_init_rd_atom, 1, kMostReads);
  rts.maxReadAtomic = static_cast<uint8_t>(std::min(static_cast<uint32_t>(most), card.reads));
  IbvVirtualQpBusinessCard numbers = qp_->businessCard();
  numbers.qpNums = card.qpNums;
  return qp_->connect(numbers, path, rts);
}

Maybe RdmaRail::post(ibv_wr_opcode opcode, uint64_t id, uint64_t local, uint32_t lkey,
                     uint64_t remote, uint32_t rkey, uint32_t bytes, bool mayInline) {
  ibv_sge sge{local, bytes, lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &sge;
  wr.num_sge = bytes > 0;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (mayInline) wr.send_flags |= IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  Maybe posted = qp_->postSend(&wr, &bad);
  if (posted) ++underWay_;
  return posted;
}

Maybe RdmaRail::postReceive() {
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = kNotice;
  return qp_->postRecv(&wr, &bad);
}

Maybe RdmaRail::arm() {
  disarm();
  if (armed_) return Unit{};
  if (Maybe armed = cq_->requestNotify(); !armed) return armed;
  armed_ = true;
  return Unit{};
}

}  // namespace ctran
