#include "ctran/verbs/objects.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>

namespace ibverbx {
namespace {

/// An Error if `wanted` is more than a device allows.
std::optional<Error> overLimit(const char* what, int64_t wanted, int64_t limit) {
  if (wanted <= limit) return std::nullopt;
  return Error{EINVAL, std::string(what) + " is " + std::to_string(wanted) +
                           ", and this device allows " + std::to_string(limit)};
}

const char* stateName(ibv_qp_state state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < std::size(kNames) ? kNames[state] : "unknown";
}

std::optional<Error> tooLarge(size_t bytes, uint64_t limit) {
  if (bytes <= limit) return std::nullopt;
  return Error{EINVAL, std::to_string(bytes) + " bytes to register, and this device allows " +
                           std::to_string(limit)};
}

Error memoryError(int errnum, size_t bytes) {
  Error error = errorOf(errnum, "registering " + std::to_string(bytes) + " bytes");
  if (errnum == ENOMEM || errnum == EAGAIN) {
    error.errStr += "; the limit of locked memory may be too low: raise ulimit -l";
  }
  return error;
}

}  // namespace

Expected<std::vector<IbvDevice>> IbvDevice::ibvGetDeviceList() {
  if (Maybe there = ibvInit(); !there) return there.error();
  const VerbsLibrary& verbs = VerbsLibrary::get();
  int count = 0;
  ibv_device** devices = verbs.get_device_list(&count);
  if (!devices) return errorOf(errno, "ibv_get_device_list (is the module ib_uverbs loaded?)");
  std::shared_ptr<ibv_device*> list(devices, verbs.free_device_list);
  std::vector<IbvDevice> found;
  for (int i = 0; i < count; ++i) found.push_back(IbvDevice(list, devices[i]));
  return found;
}

Expected<IbvContext> IbvDevice::open() const {
  const VerbsLibrary& verbs = VerbsLibrary::get();
  ibv_context* context = verbs.open_device(device_);
  if (!context) return errorOf(errno, std::string("opening RDMA device ") + name());
  auto limits = std::make_shared<ibv_device_attr>();
  IbvContext opened(context, limits);
  if (const int errnum = verbs.query_device(context, limits.get())) {
    return errorOf(errnum, "ibv_query_device");
  }
  return opened;
}

Expected<ibv_port_attr> IbvContext::queryPort(uint8_t port) const {
  if (port < 1 || port > limits_->phys_port_cnt) {
    return Error{EINVAL, "port " + std::to_string(port) + " of " + name() + ", which has " +
                             std::to_string(limits_->phys_port_cnt)};
  }
  ibv_port_attr attributes{};  // the library fills it up to `flags`
  if (const int errnum = VerbsLibrary::get().query_port(
          context(), port, reinterpret_cast<ibv_compat_port_attr*>(&attributes))) {
    return errorOf(errnum, "ibv_query_port");
  }
  return attributes;
}

Expected<ibv_gid_entry> IbvContext::queryGid(uint8_t port, int index) const {
  const VerbsLibrary& verbs = VerbsLibrary::get();
  const auto missing = [&](int errnum) {
    return errorOf(errnum, "GID " + std::to_string(index) + " of port " + std::to_string(port) +
                               " of " + name());
  };
  if (index < 0) return missing(EINVAL);
  ibv_gid_entry entry{};
  if (verbs.query_gid_ex) {
    // It asks an old kernel in the old way itself.
    if (const int errnum = verbs.query_gid_ex(context(), port, static_cast<uint32_t>(index), &entry,
                                              0, sizeof entry)) {
      return missing(errnum);
    }
    return entry;
  }
  errno = 0;
  if (verbs.query_gid(context(), port, index, &entry.gid)) return missing(errno ? errno : EINVAL);
  // The old verb fills an empty entry with zeros.
  if (entry.gid.global.subnet_prefix == 0 && entry.gid.global.interface_id == 0) {
    return missing(ENODATA);
  }
  entry.gid_index = static_cast<uint32_t>(index);
  entry.port_num = port;
  return entry;
}

Expected<IbvPd> IbvContext::allocPd() const {
  ibv_pd* pd = VerbsLibrary::get().alloc_pd(context());
  if (!pd) return errorOf(errno, "ibv_alloc_pd");
  return IbvPd(pd, limits_);
}

int IbvCompChannel::drain() {
  const VerbsLibrary& verbs = VerbsLibrary::get();
  int count = 0;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (verbs.get_cq_event(channel(), &cq, &context) == 0) {
    verbs.ack_cq_events(cq, 1);
    ++count;
  }
  return count;
}

Expected<IbvCompChannel> IbvContext::createCompChannel() const {
  ibv_comp_channel* made = VerbsLibrary::get().create_comp_channel(context());
  if (!made) return errorOf(errno, "ibv_create_comp_channel");
  IbvCompChannel channel(made);
  const int flags = ::fcntl(channel.fd(), F_GETFL);
  if (flags < 0 || ::fcntl(channel.fd(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return errorOf(errno, "fcntl of a completion channel");
  }
  return channel;
}

Expected<IbvCq> IbvContext::createCq(int entries, int vector, const IbvCompChannel* channel) const {
  if (auto error = overLimit("entries of a completion queue", entries, limits_->max_cqe)) {
    return *error;
  }
  ibv_cq* cq = VerbsLibrary::get().create_cq(context(), entries, nullptr,
                                             channel ? channel->channel() : nullptr, vector);
  if (!cq) return errorOf(errno, "ibv_create_cq");
  return IbvCq(cq);
}

Expected<std::optional<IbvAsyncEvent>> IbvContext::pollAsyncEvent() const {
  pollfd waiting{asyncFd(), POLLIN, 0};
  if (::poll(&waiting, 1, 0) <= 0) return std::optional<IbvAsyncEvent>();
  const VerbsLibrary& verbs = VerbsLibrary::get();
  ibv_async_event event{};
  if (verbs.get_async_event(context(), &event)) return errorOf(errno, "ibv_get_async_event");
  IbvAsyncEvent found{event.event_type, 0, 0, verbs.event_type_str(event.event_type)};
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      found.cq = event.element.cq;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      found.qpNum = event.element.qp->qp_num;
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      found.port = event.element.port_num;
      break;
    default:
      break;
  }
  // After this its queue pair or completion queue may be destroyed.
  verbs.ack_async_event(&event);
  return std::optional<IbvAsyncEvent>(std::move(found));
}

Expected<IbvMr> IbvPd::regMr(void* address, size_t bytes, unsigned access) const {
  if (const auto error = tooLarge(bytes, limits_->max_mr_size)) return *error;
  ibv_mr* mr = VerbsLibrary::get().reg_mr(pd(), address, bytes, static_cast<int>(access));
  if (!mr) return memoryError(errno, bytes);
  return IbvMr(mr);
}

Expected<IbvMr> IbvPd::regDmabufMr(uint64_t offset, size_t bytes, uint64_t iova, int fd,
                                   unsigned access) const {
  const auto reg = VerbsLibrary::get().reg_dmabuf_mr;
  if (!reg) return Error{EOPNOTSUPP, "dma-buf: this libibverbs has none; install rdma-core 34"};
  if (const auto error = tooLarge(bytes, limits_->max_mr_size)) return *error;
  ibv_mr* mr = reg(pd(), offset, bytes, iova, fd, static_cast<int>(access));
  if (!mr) return memoryError(errno, bytes);
  return IbvMr(mr);
}

Expected<IbvQp> IbvPd::createQp(ibv_qp_init_attr* attributes) const {
  const ibv_qp_cap& cap = attributes->cap;
  for (const auto& error : {overLimit("max_send_wr", cap.max_send_wr, limits_->max_qp_wr),
                            overLimit("max_recv_wr", cap.max_recv_wr, limits_->max_qp_wr),
                            overLimit("max_send_sge", cap.max_send_sge, limits_->max_sge),
                            overLimit("max_recv_sge", cap.max_recv_sge, limits_->max_sge)}) {
    if (error) return *error;
  }
  if (attributes->qp_type != IBV_QPT_RC) {
    return Error{EINVAL, "a queue pair of another type than IBV_QPT_RC"};
  }
  ibv_qp* qp = VerbsLibrary::get().create_qp(pd(), attributes);
  if (!qp) return errorOf(errno, "ibv_create_qp");
  return IbvQp(qp, attributes->cap, limits_);
}

Maybe IbvQp::modify(ibv_qp_attr& attributes, int mask, ibv_qp_state from) {
  if (state_ != from) {
    return Error{EINVAL, std::string("a queue pair goes from ") + stateName(from) + " to " +
                             stateName(attributes.qp_state) + ", and this one is in " +
                             stateName(state_)};
  }
  if (const int errnum = VerbsLibrary::get().modify_qp(qp(), &attributes, mask | IBV_QP_STATE)) {
    return errorOf(errnum, std::string("ibv_modify_qp to ") + stateName(attributes.qp_state));
  }
  state_ = attributes.qp_state;
  return Unit{};
}

Maybe IbvQp::init(uint8_t port, unsigned access, uint16_t pkeyIndex) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port;
  attributes.pkey_index = pkeyIndex;
  attributes.qp_access_flags = access;
  return modify(attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, IBV_QPS_RESET);
}

Maybe IbvQp::toRtr(const IbvRtrOptions& options) {
  if (auto error =
          overLimit("maxDestReadAtomic", options.maxDestReadAtomic, limits_->max_qp_rd_atom)) {
    return *error;
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = options.mtu;
  attributes.dest_qp_num = options.remoteQpNum;
  attributes.rq_psn = options.psn;
  attributes.max_dest_rd_atomic = options.maxDestReadAtomic;
  attributes.min_rnr_timer = options.minRnrTimer;
  ibv_ah_attr& path = attributes.ah_attr;
  path.dlid = options.remoteLid;
  path.sl = options.serviceLevel;
  path.port_num = options.port;
  path.is_global = options.global;
  if (options.global) {
    path.grh.dgid = options.remoteGid;
    path.grh.sgid_index = options.gidIndex;
    path.grh.hop_limit = 255;
    path.grh.traffic_class = options.trafficClass;
  }
  return modify(attributes,
                IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                IBV_QPS_INIT);
}

Maybe IbvQp::toRts(const IbvRtsOptions& options) {
  if (auto error =
          overLimit("maxReadAtomic", options.maxReadAtomic, limits_->max_qp_init_rd_atom)) {
    return *error;
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = options.timeout;
  attributes.retry_cnt = options.retryCount;
  attributes.rnr_retry = options.rnrRetry;
  attributes.sq_psn = options.psn;
  attributes.max_rd_atomic = options.maxReadAtomic;
  return modify(attributes,
                IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                    IBV_QP_MAX_QP_RD_ATOMIC,
                IBV_QPS_RTR);
}

Maybe IbvQp::toError() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return modify(attributes, 0, state_);
}

}  // namespace ibverbx
