// A program that links libibverbs directly (IBVERBX_BUILD_RDMA_CORE): one write between two queue
// pairs. The library that CTRAN_VERBS_LIBRARY names is none: nothing is loaded.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "ctran/verbs/objects.h"

#ifndef IBVERBX_BUILD_RDMA_CORE
#error "this program is there to be built with IBVERBX_BUILD_RDMA_CORE"
#endif

using namespace ibverbx;

namespace {

template <typename T>
T must(Expected<T> expected) {
  if (expected.hasError()) throw std::runtime_error(expected.error().errStr);
  return std::move(expected).value();
}

IbvQp makeQp(const IbvPd& pd, const IbvCq& cq) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq.cq();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  IbvQp qp = must(pd.createQp(&attributes));
  must(qp.init(1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  return qp;
}

void connect(IbvQp& qp, const IbvQp& other, const ibv_gid_entry& gid) {
  IbvRtrOptions path;
  path.remoteQpNum = other.qpNum();
  path.remoteGid = gid.gid;
  path.gidIndex = static_cast<uint8_t>(gid.gid_index);
  must(qp.toRtr(path));
  must(qp.toRts({}));
}

void writeOnce() {
  const IbvContext context = must(must(IbvDevice::ibvGetDeviceList()).at(0).open());
  const IbvPd pd = must(context.allocPd());
  IbvCq cq = must(context.createCq(16));
  const ibv_gid_entry gid = must(context.queryGid(1, 0));
  IbvQp here = makeQp(pd, cq), there = makeQp(pd, cq);
  connect(here, there, gid);
  connect(there, here, gid);

  uint64_t memory[] = {42, 0};
  const IbvMr region =
      must(pd.regMr(memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  ibv_sge from{reinterpret_cast<uint64_t>(&memory[0]), sizeof memory[0], region.lkey()};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &from;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(&memory[1]);
  wr.wr.rdma.rkey = region.rkey();
  must(here.postSend(&wr, &bad));
  ibv_wc done{};
  while (must(cq.pollCq({&done, 1})) == 0) continue;
  if (done.status != IBV_WC_SUCCESS || memory[1] != 42) {
    throw std::runtime_error(VerbsLibrary::get().wc_status_str(done.status));
  }
  std::printf("8 bytes written by %s\n", context.name());
}

}  // namespace

int main() {
  ::setenv("CTRAN_VERBS_LIBRARY", "/nowhere/libibverbs.so.1", 1);
  try {
    writeOnce();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
