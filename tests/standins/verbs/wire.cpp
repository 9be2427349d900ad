#include "tests/standins/verbs/wire.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace stand_in {
namespace {

bool needsReceive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

ibv_wc_opcode completionOf(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    default:
      return IBV_WC_SEND;
  }
}

size_t bytesOf(const ibv_sge* sges, int count) {
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += sges[i].length;
  return bytes;
}

char* memoryAt(uint64_t address) { return reinterpret_cast<char*>(address); }

}  // namespace

Wire& Wire::get() {
  static Wire* wire = new Wire;  // outlives every thread of the process
  return *wire;
}

void Wire::advance() {
  if (seed == 0) {
    for (bool some = true; some;) {
      some = false;
      for (size_t i = 0; i < order.size(); ++i) {
        for (unsigned what = 0; what < 3; ++what) {
          while (step(*order[i], what)) some = true;
        }
      }
    }
    return;
  }
  if (order.empty()) return;
  for (unsigned steps = 1 + random() % 4; steps > 0; --steps) {
    // A choice that cannot go on is left for the next one, so that every poll gets further.
    const size_t start = random() % (3 * order.size());
    for (size_t i = 0; i < 3 * order.size(); ++i) {
      const size_t choice = (start + i) % (3 * order.size());
      if (step(*order[choice / 3], choice % 3)) break;
    }
  }
}

bool Wire::step(Qp& qp, unsigned what) {
  if (what == 0) return execute(qp);
  auto& done = what == 1 ? qp.sendDone : qp.recvDone;
  if (done.empty()) return false;
  deliver(done, *static_cast<Cq*>(what == 1 ? qp.send_cq : qp.recv_cq));
  return true;
}

void Wire::deliver(std::deque<Cq::Entry>& from, Cq& to) {
  if (to.overrun || static_cast<int>(to.entries.size()) >= to.cqe) {
    from.pop_front();
    return overrun(to);
  }
  to.entries.push_back(std::move(from.front()));
  from.pop_front();
  if (to.armed && to.channel) {
    to.armed = false;
    ibv_cq* cq = &to;
    [[maybe_unused]] const ssize_t written = ::write(to.channel->refcnt, &cq, sizeof(void*));
  }
}

void Wire::overrun(Cq& cq) {
  if (std::exchange(cq.overrun, true)) return;
  ibv_async_event event{};
  event.element.cq = &cq;
  event.event_type = IBV_EVENT_CQ_ERR;
  raise(cq.context, event);
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i]->send_cq == &cq || order[i]->recv_cq == &cq) fail(*order[i]);
  }
}

Mr* Wire::find(uint32_t key, uint64_t address, uint64_t bytes, const ibv_pd* pd, unsigned access) {
  const auto found = memory.find(key);
  if (found == memory.end()) return nullptr;
  Mr* mr = found->second;
  if (mr->pd != pd || (mr->access & access) != access) return nullptr;
  if (address < mr->iova || bytes > mr->length || address - mr->iova > mr->length - bytes) {
    return nullptr;
  }
  return mr;
}

Qp* Wire::peerOf(const Qp& qp) {
  const auto found = qps.find(qp.attributes.dest_qp_num);
  if (found == qps.end()) return nullptr;
  Qp* peer = found->second;
  const Device& here = static_cast<Context*>(qp.context)->ours();
  const Device& there = static_cast<Context*>(peer->context)->ours();
  const bool connected = (peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS) &&
                         peer->attributes.dest_qp_num == qp.qp_num &&
                         std::memcmp(&there.gid, &qp.attributes.ah_attr.grh.dgid, 16) == 0;
  return connected && here.linkUp && there.linkUp ? peer : nullptr;
}

/// What was under way when a queue pair failed may still arrive, though its completion says no.
bool Wire::flush(Qp& qp) {
  Send& send = qp.sends.front();
  Qp* peer = peerOf(qp);
  if (send.index < qp.underWayAtFailure && peer && random() % 2 &&
      !(needsReceive(send.wr.opcode) && peer->recvs.empty())) {
    move(qp, *peer, send);
  }
  complete(qp, send, IBV_WC_WR_FLUSH_ERR, 0);
  qp.sends.pop_front();
  return true;
}

bool Wire::execute(Qp& qp) {
  if (qp.state == IBV_QPS_ERR && !qp.sends.empty()) return flush(qp);
  if (qp.state != IBV_QPS_RTS || qp.sends.empty() || qp.asked != 0) return false;
  Send& send = qp.sends.front();
  ibv_wc_status status = IBV_WC_SUCCESS;
  Device& device = static_cast<Context*>(qp.context)->ours();
  for (auto fault = faults.begin(); fault != faults.end(); ++fault) {
    if ((fault->qpNum == 0 || fault->qpNum == qp.qp_num) && --fault->after == 0) {
      const Fault found = *fault;
      fault->after = found.every;
      if (found.every == 0) faults.erase(fault);
      status = found.status;
      if (found.what == Fault::kUnplug) plug(device, false);
      if (found.what == Fault::kRemove) {
        remove(device);
        return true;
      }
      break;
    }
  }
  if (status == IBV_WC_SUCCESS && qps.count(qp.attributes.dest_qp_num) == 0) {
    if (!device.linkUp) {
      status = IBV_WC_RETRY_EXC_ERR;
    } else if (ask(qp, send, status)) {
      return true;
    }
  } else if (status == IBV_WC_SUCCESS) {
    Qp* peer = peerOf(qp);
    if (!peer) {
      status = IBV_WC_RETRY_EXC_ERR;
    } else if (needsReceive(send.wr.opcode) && peer->recvs.empty()) {
      if (qp.attributes.rnr_retry == 7) return false;
      if (qp.rnrRetries++ < qp.attributes.rnr_retry) return false;
      status = IBV_WC_RNR_RETRY_EXC_ERR;
    } else {
      status = move(qp, *peer, send);
    }
  }
  finish(qp, status);
  return true;
}

/// The first send is done.
void Wire::finish(Qp& qp, ibv_wc_status status) {
  Send& send = qp.sends.front();
  ++executed;
  qp.rnrRetries = 0;
  const size_t bytes = bytesOf(send.sges, send.wr.num_sge);
  if (status != IBV_WC_SUCCESS || qp.signalAll || (send.wr.send_flags & IBV_SEND_SIGNALED)) {
    complete(qp, send, status, static_cast<uint32_t>(bytes));
  }
  qp.sends.pop_front();
  if (status != IBV_WC_SUCCESS) fail(qp);
}

namespace {

Request requestOf(const Qp& qp, const Send& send) {
  const ibv_send_wr& wr = send.wr;
  Request request{};
  request.opcode = wr.opcode;
  request.bytes = static_cast<uint32_t>(bytesOf(send.sges, wr.num_sge));
  request.immediate = wr.imm_data;
  request.fromQp = qp.qp_num;
  request.toQp = qp.attributes.dest_qp_num;
  request.toGid = qp.attributes.ah_attr.grh.dgid;
  request.waitsForReceive = qp.attributes.rnr_retry == 7;
  const bool atomic = isAtomic(wr.opcode);
  request.rkey = atomic ? wr.wr.atomic.rkey : wr.wr.rdma.rkey;
  request.remoteAddress = atomic ? wr.wr.atomic.remote_addr : wr.wr.rdma.remote_addr;
  if (atomic) {
    request.compareAdd = wr.wr.atomic.compare_add;
    request.swap = wr.wr.atomic.swap;
  }
  return request;
}

bool fetches(ibv_wr_opcode opcode) { return isAtomic(opcode) || opcode == IBV_WR_RDMA_READ; }

void scatter(const Send& send, const std::string& payload) {
  size_t at = 0;
  for (int i = 0; i < send.wr.num_sge; at += send.sges[i++].length) {
    std::memcpy(memoryAt(send.sges[i].addr), payload.data() + at, send.sges[i].length);
  }
}

}  // namespace

/// Asks another process; false if that has failed, and how.
bool Wire::ask(Qp& qp, Send& send, ibv_wc_status& status) {
  std::string payload;
  status = gather(qp, send, payload);
  if (status != IBV_WC_SUCCESS) return false;
  Request request = requestOf(qp, send);
  request.id = nextRequest++;
  qp.asked = request.id;
  if (network.send(request, payload)) return true;
  qp.asked = 0;
  status = IBV_WC_RETRY_EXC_ERR;
  return false;
}

ibv_wc_status Wire::serve(const Request& request, std::string& payload) {
  const auto found = qps.find(request.toQp);
  if (found == qps.end()) return IBV_WC_RETRY_EXC_ERR;
  Qp& qp = *found->second;
  const Device& device = static_cast<Context*>(qp.context)->ours();
  if ((qp.state != IBV_QPS_RTR && qp.state != IBV_QPS_RTS) || !device.linkUp ||
      qp.attributes.dest_qp_num != request.fromQp ||
      std::memcmp(&device.gid, &request.toGid, sizeof request.toGid) != 0) {
    return IBV_WC_RETRY_EXC_ERR;
  }
  if (needsReceive(request.opcode) && qp.recvs.empty()) {
    return request.waitsForReceive ? kNotReady : IBV_WC_RNR_RETRY_EXC_ERR;
  }
  return access(qp, request, payload);
}

void Wire::answered(const Request& reply, const std::string& payload) {
  const auto found = qps.find(reply.toQp);
  if (found == qps.end() || found->second->asked != reply.replyTo) return;
  Qp& qp = *found->second;
  qp.asked = 0;
  const Send& send = qp.sends.front();
  if (reply.status == IBV_WC_SUCCESS && fetches(send.wr.opcode)) scatter(send, payload);
  finish(qp, reply.status);
}

void Wire::unreachable(uint32_t slot) {
  for (size_t i = 0; i < order.size(); ++i) {
    Qp& qp = *order[i];
    if (qp.asked == 0 || qp.attributes.dest_qp_num / Network::kQpNums != slot) continue;
    qp.asked = 0;
    finish(qp, IBV_WC_RETRY_EXC_ERR);
  }
}

ibv_wc_status Wire::move(Qp& qp, Qp& peer, Send& send) {
  std::string payload;
  ibv_wc_status status = gather(qp, send, payload);
  if (status == IBV_WC_SUCCESS) status = access(peer, requestOf(qp, send), payload);
  if (status == IBV_WC_SUCCESS && fetches(send.wr.opcode)) scatter(send, payload);
  return status;
}

/// What is here.
ibv_wc_status Wire::gather(Qp& qp, const Send& send, std::string& payload) {
  const ibv_send_wr& wr = send.wr;
  if (isAtomic(wr.opcode) && bytesOf(send.sges, wr.num_sge) != 8) return IBV_WC_LOC_LEN_ERR;
  if (wr.send_flags & IBV_SEND_INLINE) {
    payload = send.inlined;
    return IBV_WC_SUCCESS;
  }
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = send.sges[i];
    const unsigned needed = fetches(wr.opcode) ? IBV_ACCESS_LOCAL_WRITE : 0u;
    if (sge.length && !find(sge.lkey, sge.addr, sge.length, qp.pd, needed)) {
      return IBV_WC_LOC_PROT_ERR;
    }
    if (!fetches(wr.opcode)) payload.append(memoryAt(sge.addr), sge.length);
  }
  return IBV_WC_SUCCESS;
}

/// What is there: with the bytes that come, or into those that go back.
ibv_wc_status Wire::access(Qp& peer, const Request& request, std::string& payload) {
  const auto refuse = [&](ibv_wc_status status, ibv_event_type type) {
    ibv_async_event event{};
    event.element.qp = &peer;
    event.event_type = type;
    raise(peer.context, event);
    fail(peer);
    return status;
  };
  const size_t bytes = request.bytes;
  const bool sends = request.opcode == IBV_WR_SEND || request.opcode == IBV_WR_SEND_WITH_IMM;
  uint64_t remote = 0;
  if (!sends && bytes > 0) {
    const unsigned needed = isAtomic(request.opcode)             ? IBV_ACCESS_REMOTE_ATOMIC
                            : request.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
                                                                 : IBV_ACCESS_REMOTE_WRITE;
    remote = request.remoteAddress;
    Mr* mr = find(request.rkey, remote, bytes, peer.pd, needed);
    if (!mr || (peer.attributes.qp_access_flags & needed) != needed) {
      return refuse(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    }
    if (isAtomic(request.opcode) && remote % 8 != 0) {
      return refuse(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
    remote = reinterpret_cast<uint64_t>(mr->addr) + (remote - mr->iova);
  }
  if (fetches(request.opcode)) {
    payload.assign(memoryAt(remote), bytes);
    if (isAtomic(request.opcode)) {
      uint64_t before = 0;
      std::memcpy(&before, payload.data(), 8);
      uint64_t after = before + request.compareAdd;
      if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        after = before == request.compareAdd ? request.swap : before;
      }
      std::memcpy(memoryAt(remote), &after, 8);
    }
    return IBV_WC_SUCCESS;
  }
  if (remote) std::memcpy(memoryAt(remote), payload.data(), bytes);
  if (!needsReceive(request.opcode)) return IBV_WC_SUCCESS;
  // A receive is used up.
  Recv recv = peer.recvs.front();
  ibv_wc wc{};
  wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  wc.byte_len = static_cast<uint32_t>(bytes);
  wc.src_qp = request.fromQp;
  if (request.opcode != IBV_WR_SEND) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = request.immediate;
  }
  if (request.opcode != IBV_WR_RDMA_WRITE_WITH_IMM) {
    wc.opcode = IBV_WC_RECV;
    ibv_wc_status status = IBV_WC_SUCCESS;
    if (bytesOf(recv.sges, recv.wr.num_sge) < bytes) status = IBV_WC_LOC_LEN_ERR;
    size_t at = 0;
    for (int i = 0; i < recv.wr.num_sge && status == IBV_WC_SUCCESS; ++i) {
      const ibv_sge& sge = recv.sges[i];
      const size_t part = std::min<size_t>(sge.length, bytes - at);
      if (part == 0) continue;
      if (!find(sge.lkey, sge.addr, part, peer.pd, IBV_ACCESS_LOCAL_WRITE)) {
        status = IBV_WC_LOC_PROT_ERR;
        break;
      }
      std::memcpy(memoryAt(sge.addr), payload.data() + at, part);
      at += part;
    }
    if (status != IBV_WC_SUCCESS) {
      peer.recvs.pop_front();
      complete(peer, recv, status, wc);
      if (status != IBV_WC_LOC_LEN_ERR) fail(peer);
      return status == IBV_WC_LOC_LEN_ERR ? refuse(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR)
                                          : IBV_WC_REM_OP_ERR;
    }
  }
  peer.recvs.pop_front();
  complete(peer, recv, IBV_WC_SUCCESS, wc);
  return IBV_WC_SUCCESS;
}

void Wire::complete(Qp& qp, const Send& send, ibv_wc_status status, uint32_t bytes) {
  ibv_wc wc{};
  wc.wr_id = send.wr.wr_id;
  wc.status = status;
  wc.qp_num = qp.qp_num;
  if (status == IBV_WC_SUCCESS) {
    wc.opcode = completionOf(send.wr.opcode);
    wc.byte_len = bytes;
  } else {
    wc.opcode = static_cast<ibv_wc_opcode>(0xdead);  // undefined, as the verbs say
  }
  qp.sendDone.push_back({wc, qp.sendsRetired, send.index + 1});
}

void Wire::complete(Qp& qp, const Recv& recv, ibv_wc_status status, ibv_wc wc) {
  wc.wr_id = recv.wr.wr_id;
  wc.status = status;
  wc.qp_num = qp.qp_num;
  if (status != IBV_WC_SUCCESS) wc.opcode = static_cast<ibv_wc_opcode>(0xdead);
  qp.recvDone.push_back({wc, qp.recvsRetired, recv.index + 1});
}

void Wire::fail(Qp& qp) {
  if (qp.state != IBV_QPS_ERR) qp.underWayAtFailure = qp.sendsPosted;
  qp.state = IBV_QPS_ERR;
  qp.asked = 0;  // an answer that still comes is ignored
  while (seed == 0 && !qp.sends.empty()) {
    complete(qp, qp.sends.front(), IBV_WC_WR_FLUSH_ERR, 0);
    qp.sends.pop_front();
  }
  while (!qp.recvs.empty()) {
    complete(qp, qp.recvs.front(), IBV_WC_WR_FLUSH_ERR, {});
    qp.recvs.pop_front();
  }
}

void Wire::raise(ibv_context* context, const ibv_async_event& event) {
  auto* ours = static_cast<Context*>(context);
  ours->events.push_back(event);
  [[maybe_unused]] const ssize_t written = ::write(ours->eventWriter, "e", 1);
}

void Wire::plug(Device& device, bool up) {
  device.linkUp = up;
  ibv_async_event event{};
  event.element.port_num = 1;
  event.event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
  for (Context* context : contexts) {
    if (context->device == &device) raise(context, event);
  }
}

void Wire::remove(Device& device) {
  device.removed = true;
  device.linkUp = false;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  for (Context* context : contexts) {
    if (context->device == &device) raise(context, event);
  }
  for (Qp* qp : order) {
    if (qp->context->device == &device) fail(*qp);
  }
}

uint32_t Wire::freeQpNum() {
  const uint32_t first = network.firstQpNum();
  do {
    nextQpNum = std::max(0x11u, (nextQpNum + 1) % Network::kQpNums);
  } while (qps.count(first + nextQpNum) > 0);
  return first + nextQpNum;
}

}  // namespace stand_in
