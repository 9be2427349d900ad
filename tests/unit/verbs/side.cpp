#include "tests/unit/verbs/side.h"

namespace ibverbx {

ibv_gid_entry gidOf(const IbvContext& context) {
  const ibv_gid_entry first = must(context.queryGid(1, 0));
  const int entries = must(context.queryPort(1)).gid_tbl_len;
  for (int i = 0; i < entries; ++i) {
    const Expected<ibv_gid_entry> gid = context.queryGid(1, i);
    const bool ipv4 = gid && gid->gid.global.subnet_prefix == 0 && gid->gid.raw[10] == 0xff;
    if (ipv4 && gid->gid_type == IBV_GID_TYPE_ROCE_V2) return *gid;
  }
  return first;
}

IbvQp Side::makeQp(uint32_t sends, uint32_t recvs) const {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = sendCq.cq();
  attributes.recv_cq = recvCq.cq();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {sends, recvs, 2, 2, 64};
  return must(pd.createQp(&attributes));
}

IbvRtrOptions Side::pathTo(const ibv_gid& remoteGid) const {
  IbvRtrOptions path;
  path.remoteGid = remoteGid;
  path.gidIndex = static_cast<uint8_t>(gid.gid_index);
  return path;
}

void Side::connect(IbvQp& qp, uint32_t remoteQpNum, const ibv_gid& remoteGid,
                   const IbvRtsOptions& rts) const {
  IbvRtrOptions rtr = pathTo(remoteGid);
  rtr.remoteQpNum = remoteQpNum;
  if (qp.state() == IBV_QPS_RESET) must(qp.init(1, kAllAccess));
  must(qp.toRtr(rtr));
  must(qp.toRts(rts));
}

}  // namespace ibverbx
