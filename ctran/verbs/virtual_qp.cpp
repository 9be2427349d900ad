#include "ctran/verbs/virtual_qp.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <utility>

namespace ibverbx {
namespace {

// What a work request of ours is, told by its completion: after an error only wr_id can be read.
constexpr uint64_t kReceive = 1ull << 63;
constexpr uint64_t kNumberMask = kReceive - 1;

bool isDone(bool posted, bool noticed, uint32_t underWay) {
  return posted && noticed && underWay == 0;
}

}  // namespace

IbvVirtualQp::IbvVirtualQp(IbvVirtualCq& sendCq, IbvVirtualCq& recvCq,
                           const IbvVirtualQpConfig& config)
    : config_(config),
      sendCq_(sendCq),
      recvCq_(recvCq),
      sendEndpoint_{this, false},
      recvEndpoint_{this, true},
      messages_(std::bit_ceil(config.maxMessages)),
      // Before a fragment whose predecessor misses come at most those that have taken a receive,
      // and those that are under way.
      window_(2 * config.maxFragmentsPerQp *
              (config.scheme == LoadBalancingScheme::SPRAY ? 1 : config.numQps)),
      recvs_(std::bit_ceil(config.maxMessages)) {}

Expected<std::unique_ptr<IbvVirtualQp>> IbvVirtualQp::create(const IbvContext& context,
                                                             const IbvPd& pd, IbvVirtualCq& sendCq,
                                                             IbvVirtualCq& recvCq,
                                                             const IbvVirtualQpConfig& config) {
  if (config.numQps < 1 || config.maxFragmentBytes < 1 || config.maxFragmentsPerQp < 1 ||
      config.maxMessages < 1 || config.maxMessages > 1u << 20) {
    return Error{EINVAL, "a virtual queue pair needs at least one of each of its numbers"};
  }
  if (uint64_t{config.numQps} * config.maxFragmentsPerQp > 1u << 20) {
    return Error{EINVAL, "a virtual queue pair has at most 2^20 fragments under way; " +
                             std::to_string(config.numQps) + " queue pairs with " +
                             std::to_string(config.maxFragmentsPerQp) + " each are more"};
  }
  const Expected<ibv_port_attr> port = context.queryPort(config.port);
  if (!port) return port.error();
  if (config.maxFragmentBytes > port->max_msg_sz) {
    return Error{EINVAL, "fragments of " + std::to_string(config.maxFragmentBytes) +
                             " bytes, and this port allows " + std::to_string(port->max_msg_sz)};
  }
  std::unique_ptr<IbvVirtualQp> made(new IbvVirtualQp(sendCq, recvCq, config));
  if (Maybe opened = made->open(context, pd); !opened) return opened.error();
  return made;
}

Maybe IbvVirtualQp::open(const IbvContext& context, const IbvPd& pd) {
  const size_t count = config_.numQps + (sprays() ? 1 : 0);
  const uint32_t depth = config_.maxFragmentsPerQp;
  sendsUnderWay_.resize(count);
  owed_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const bool marked = i >= firstMarked();
    ibv_qp_init_attr attributes{};
    attributes.send_cq = sendCq_.physical(i).cq.cq();
    attributes.recv_cq = recvCq_.physical(i).cq.cq();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {depth, marked ? depth : 1, 1, 1, config_.maxInlineBytes};
    Expected<IbvQp> qp = pd.createQp(&attributes);
    while (!qp && i == 0 && config_.maxInlineBytes > 0) {
      // Not every device has so much room in a work request, and none says how much it has.
      config_.maxInlineBytes /= 2;
      attributes.cap = {depth, marked ? depth : 1, 1, 1, config_.maxInlineBytes};
      qp = pd.createQp(&attributes);
    }
    if (!qp) return qp.error();
    qps_.push_back(*std::move(qp));
    const uint32_t receives = marked ? depth : 0;
    for (const auto& [cq, entries] : {std::pair(&sendCq_, static_cast<int>(depth)),
                                      std::pair(&recvCq_, static_cast<int>(receives))}) {
      if (Maybe attached = attach(*cq, i, entries); !attached) return attached;
    }
    if (Maybe done = qps_[i].init(config_.port, config_.access); !done) return done;
    if (!postMarkReceives(i, receives)) {
      return Error{EIO, "receives could not be posted on " + std::string(context.name())};
    }
  }
  return Unit{};
}

Maybe IbvVirtualQp::attach(IbvVirtualCq& cq, size_t index, int entries) {
  IbvVirtualCq::Physical& physical = cq.physical(index);
  if (physical.free < entries) {
    return Error{ENOSPC, "a completion queue has " + std::to_string(physical.free) +
                             " entries left and a virtual queue pair needs " +
                             std::to_string(entries) + ": create it with more"};
  }
  physical.free -= entries;
  reserved_.push_back({&cq, index, entries});
  physical.targets[qps_[index].qpNum()] = {this, static_cast<uint16_t>(index)};
  return Unit{};
}

IbvVirtualQp::~IbvVirtualQp() {
  sendCq_.unlist(sendEndpoint_);
  recvCq_.unlist(recvEndpoint_);
  for (const Reservation& reservation : reserved_) {
    IbvVirtualCq::Physical& physical = reservation.cq->physical(reservation.index);
    physical.free += reservation.entries;
    physical.targets.erase(qps_[reservation.index].qpNum());
  }
}

IbvVirtualQpBusinessCard IbvVirtualQp::businessCard() const {
  IbvVirtualQpBusinessCard card{config_.scheme, config_.maxFragmentsPerQp, {}};
  for (const IbvQp& qp : qps_) card.qpNums.push_back(qp.qpNum());
  return card;
}

Maybe IbvVirtualQp::connect(const IbvVirtualQpBusinessCard& card, IbvRtrOptions path,
                            const IbvRtsOptions& rts) {
  if (card.scheme != config_.scheme || card.maxFragmentsPerQp != config_.maxFragmentsPerQp ||
      card.qpNums.size() != qps_.size()) {
    return Error{EINVAL,
                 "the two ends of a virtual queue pair differ: scheme, number of queue pairs, or "
                 "fragments per queue pair; configure both alike"};
  }
  for (size_t i = 0; i < qps_.size(); ++i) {
    path.remoteQpNum = card.qpNums[i];
    if (Maybe done = qps_[i].toRtr(path); !done) return done;
    if (Maybe done = qps_[i].toRts(rts); !done) return done;
  }
  connected_ = true;
  return Unit{};
}

Maybe IbvVirtualQp::postSend(ibv_send_wr* wr, ibv_send_wr** bad) {
  for (; wr; wr = wr->next) {
    *bad = wr;
    if (!connected_ || failed_) {
      return Error{ENOTCONN, failed_ ? "this virtual queue pair has failed"
                                     : "this virtual queue pair is not connected"};
    }
    const bool writes = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if ((!writes && wr->opcode != IBV_WR_RDMA_READ) || wr->num_sge < 0 || wr->num_sge > 1 ||
        (wr->send_flags & ~(IBV_SEND_SIGNALED | IBV_SEND_INLINE))) {
      return Error{EINVAL,
                   "a message of a virtual queue pair is a write or a read, of one element of "
                   "memory at most, with no flags but IBV_SEND_SIGNALED and IBV_SEND_INLINE"};
    }
    if (posted_ - done_ == config_.maxMessages) {
      return Error{ENOMEM, std::to_string(config_.maxMessages) +
                               " messages are under way: poll the virtual completion queue"};
    }
    const ibv_sge sge = wr->num_sge ? wr->sg_list[0] : ibv_sge{};
    const bool notify = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const bool inlines = writes && (config_.inlinesAll || (wr->send_flags & IBV_SEND_INLINE) != 0);
    const bool joined = sprays() && notify && sge.length <= config_.maxJoinedBytes &&
                        sge.length <= config_.maxFragmentBytes;
    message(posted_++) = {wr->wr_id,
                          sge.addr,
                          wr->wr.rdma.remote_addr,
                          sge.length,
                          sge.lkey,
                          wr->wr.rdma.rkey,
                          wr->opcode == IBV_WR_RDMA_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                          (wr->send_flags & IBV_SEND_SIGNALED) != 0,
                          notify,
                          inlines,
                          joined,
                          false,
                          !(notify && sprays()),
                          0,
                          0,
                          IBV_WC_SUCCESS};
  }
  progress();
  return Unit{};
}

Maybe IbvVirtualQp::postRecv(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  for (; wr; wr = wr->next) {
    *bad = wr;
    if (failed_) return Error{ENOTCONN, "this virtual queue pair has failed"};
    if (wr->num_sge != 0) {
      return Error{EINVAL, "a receive of a virtual queue pair has no memory of its own"};
    }
    if (recvsPosted_ - recvsDone_ == config_.maxMessages) {
      return Error{ENOMEM, std::to_string(config_.maxMessages) +
                               " receives are posted: poll the virtual completion queue"};
    }
    recvs_[recvsPosted_++ & (recvs_.size() - 1)] = wr->wr_id;
  }
  recvCq_.list(recvEndpoint_);
  return Unit{};
}

void IbvVirtualQp::fail() { fail(IBV_WC_WR_FLUSH_ERR); }

void IbvVirtualQp::fail(ibv_wc_status receiveStatus) {
  sendCq_.list(sendEndpoint_);
  recvCq_.list(recvEndpoint_);
  if (failed_) return;
  failed_ = true;
  recvStatus_ = receiveStatus;
  for (IbvQp& qp : qps_) {
    // A device that is gone may refuse; it has flushed them itself.
    [[maybe_unused]] const Maybe done = qp.toError();
  }
}

void IbvVirtualQp::completed(uint16_t index, const ibv_wc& wc) {
  if (wc.wr_id & kReceive) {
    --markReceives_;
    recvCq_.list(recvEndpoint_);
    if (wc.status != IBV_WC_SUCCESS) return fail(wc.status);
    if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM ||
        !window_.accept(ntohl(wc.imm_data), wc.byte_len, index)) {
      fail(IBV_WC_BAD_RESP_ERR);
    }
    return;
  }
  --sendsUnderWay_[index];
  Message& of = message(wc.wr_id & kNumberMask);
  --of.underWay;
  sendCq_.list(sendEndpoint_);
  if (wc.status == IBV_WC_SUCCESS) return;
  if (of.status == IBV_WC_SUCCESS || of.status == IBV_WC_WR_FLUSH_ERR) of.status = wc.status;
  fail(IBV_WC_WR_FLUSH_ERR);
}

bool IbvVirtualQp::next(bool receives, ibv_wc& completion) {
  return receives ? nextRecv(completion) : nextSend(completion);
}

bool IbvVirtualQp::nextSend(ibv_wc& completion) {
  progress();
  while (done_ < posted_) {
    Message& first = message(done_);
    const bool finished = isDone(first.posted, first.noticed, first.underWay);
    if (!finished && !(failed_ && first.underWay == 0)) return false;
    ++done_;
    ibv_wc_status status = first.status;
    // No notice of what comes after a failure reaches the receiver.
    if ((!finished || sendFailed_) && status == IBV_WC_SUCCESS) status = IBV_WC_WR_FLUSH_ERR;
    sendFailed_ = status != IBV_WC_SUCCESS;
    if (status == IBV_WC_SUCCESS && !first.signaled) continue;
    completion = {};
    completion.wr_id = first.wrId;
    completion.status = status;
    completion.opcode = first.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
    completion.byte_len = first.length;
    completion.qp_num = qpNum();
    return true;
  }
  return false;
}

bool IbvVirtualQp::nextRecv(ibv_wc& completion) {
  while (const SequenceWindow::Fragment* fragment = window_.front()) {
    // Without a receive of the user's the notice stays where it is, and so does the place that it
    // takes: the sender waits, as it does for a receiver that is not ready.
    if (fragment->notify && recvsDone_ == recvsPosted_) return false;
    const bool notify = fragment->notify;
    if (!sprays()) bytesSinceNotice_ += fragment->bytes;
    const size_t qp = fragment->qp;
    window_.pop();
    owe(qp);
    if (!notify) continue;
    completion = {};
    completion.wr_id = recvs_[recvsDone_++ & (recvs_.size() - 1)];
    completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    completion.byte_len = std::exchange(bytesSinceNotice_, 0);
    completion.qp_num = qpNum();
    return true;
  }
  if (!failed_ || markReceives_ > 0 || recvsDone_ == recvsPosted_) return false;
  completion = {};
  completion.wr_id = recvs_[recvsDone_++ & (recvs_.size() - 1)];
  completion.status = std::exchange(recvStatus_, IBV_WC_WR_FLUSH_ERR);
  completion.qp_num = qpNum();
  return true;
}

void IbvVirtualQp::progress() {
  postNotices();  // of what was split before; what is split now comes after them
  while (!failed_ && splitting_ < posted_) {
    if (message(splitting_).joined) {
      message(splitting_).posted = true;
    } else if (!postFragment(splitting_)) {
      break;
    }
    if (message(splitting_).posted) ++splitting_;
  }
  postNotices();
  // What failed in here has nothing under way that would tell of it.
  if (failed_) sendCq_.list(sendEndpoint_);
}

/// A notice goes out when the data of its message, and of all before, are known to be placed, or
/// have theirs before it on the same queue pair. The data of a joined message go with it.
void IbvVirtualQp::postNotices() {
  while (sprays() && !failed_ && noticing_ < splitting_) {
    const Message& first = message(noticing_);
    if (!first.noticed && (first.underWay > 0 || !postNotice(noticing_))) break;
    // Who waits for no notice must still be placed before the notices that follow.
    if (!first.notify && first.underWay > 0) break;
    ++noticing_;
  }
}

bool IbvVirtualQp::postFragment(uint64_t number) {
  size_t qp = turn_;
  for (uint32_t asked = 0; sendsUnderWay_[qp] == config_.maxFragmentsPerQp; ++asked) {
    if (asked == config_.numQps) return false;
    qp = (qp + 1) % config_.numQps;
  }
  Message& from = message(number);
  const uint32_t bytes = std::min(from.length - from.offset, config_.maxFragmentBytes);
  const bool last = from.offset + bytes == from.length;
  ibv_sge sge{from.localAddress + from.offset, bytes, from.lkey};
  ibv_send_wr wr{};
  wr.wr_id = number & kNumberMask;
  wr.sg_list = &sge;
  wr.num_sge = bytes > 0;
  wr.opcode = from.opcode;
  wr.wr.rdma.remote_addr = from.remoteAddress + from.offset;
  wr.wr.rdma.rkey = from.rkey;
  if (!sprays() && from.opcode == IBV_WR_RDMA_WRITE) {
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htonl(FragmentMark::pack(sequence_++, last && from.notify));
  }
  if (inlines(from, bytes)) wr.send_flags = IBV_SEND_INLINE;
  if (!post(qp, wr)) return false;
  ++from.underWay;
  from.offset += bytes;
  from.posted = last;
  turn_ = (qp + 1) % config_.numQps;
  return true;
}

bool IbvVirtualQp::postNotice(uint64_t number) {
  if (sendsUnderWay_[config_.numQps] == config_.maxFragmentsPerQp) return false;
  Message& of = message(number);
  ibv_sge sge{of.localAddress, of.length, of.lkey};
  ibv_send_wr wr{};
  wr.wr_id = number & kNumberMask;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htonl(FragmentMark::pack(sequence_++, true));
  wr.wr.rdma.remote_addr = of.remoteAddress;
  wr.wr.rdma.rkey = of.rkey;
  if (of.joined && of.length > 0) {
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (inlines(of, of.length)) wr.send_flags = IBV_SEND_INLINE;
  }
  if (!post(config_.numQps, wr)) return false;
  ++of.underWay;
  of.noticed = true;
  return true;
}

bool IbvVirtualQp::post(size_t qp, ibv_send_wr& wr) {
  wr.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (qps_[qp].postSend(&wr, &bad).hasError()) {
    fail(IBV_WC_WR_FLUSH_ERR);
    return false;
  }
  ++sendsUnderWay_[qp];
  return true;
}

bool IbvVirtualQp::postMarkReceives(size_t qp, uint32_t count) {
  std::array<ibv_recv_wr, 32> list;
  while (count > 0) {
    const uint32_t now = std::min(count, static_cast<uint32_t>(list.size()));
    for (uint32_t i = 0; i < now; ++i) {
      list[i] = {kReceive, i + 1 < now ? &list[i + 1] : nullptr, nullptr, 0};
    }
    ibv_recv_wr* bad = nullptr;
    if (qps_[qp].postRecv(list.data(), &bad).hasError()) return false;
    markReceives_ += now;
    count -= now;
  }
  return true;
}

/// A receive has been used up. Whoever waits for the notice gets it first; but half of the receives
/// are always posted, as nobody need poll again.
void IbvVirtualQp::owe(size_t qp) {
  if (failed_) return;
  ++owed_[qp];
  ++owedInAll_;
  if (2 * owed_[qp] >= config_.maxFragmentsPerQp) repay(qp);
}

void IbvVirtualQp::repay(size_t qp) {
  owedInAll_ -= owed_[qp];
  if (!postMarkReceives(qp, std::exchange(owed_[qp], 0))) fail(IBV_WC_GENERAL_ERR);
}

void IbvVirtualQp::repay() {
  for (size_t qp = 0; qp < owed_.size() && owes(); ++qp) {
    if (owed_[qp] > 0) repay(qp);
  }
}

}  // namespace ibverbx
