// A stand-in for libibverbs.so.1: reliable connections between the threads and the processes of one
// machine. It takes from the real one: the binary interface with its symbol versions, keys and
// access rights, bounds, the states of a queue pair, receiver not ready, flushing, capacities of
// queues, async events.
//
// Tests steer it with the functions of control.h, and from outside a process with
//   STAND_IN_VERBS_DEVICES  how many devices there are (2)
//   STAND_IN_VERBS_SEED     as standInVerbsReset
//   STAND_IN_VERBS_FAULT    fail:N:STATUS, unplug:N or remove:N: what befalls the N-th work request
//                           of this process, or the device at that moment; every:N:STATUS: what
//                           befalls each N-th one; several with commas
//   STAND_IN_VERBS_PEER_MEMORY=0  there is no module through which devices reach memory of a GPU,
//                           which is the stand-in's for the CUDA driver, by its address

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "tests/standins/verbs/control.h"
#include "tests/standins/verbs/wire.h"

#define STAND_IN extern "C" __attribute__((visibility("default")))

namespace stand_in {
namespace {

constexpr uint64_t kPage = 4096;

/// Makes an object that counts.
template <typename T>
T* made() {
  ++Wire::get().objects;
  return new T{};
}

template <typename T, typename Base>
int destroy(Base* object) {
  --Wire::get().objects;
  delete static_cast<T*>(object);
  return 0;
}

void readEnvironment(Wire& wire) {
  if (const char* seed = std::getenv("STAND_IN_VERBS_SEED")) {
    wire.seed = std::strtoull(seed, nullptr, 10);
    wire.random.seed(wire.seed);
  }
  const char* text = std::getenv("STAND_IN_VERBS_FAULT");
  while (text && *text) {
    unsigned long long after = 0;
    int status = 0;
    if (std::sscanf(text, "fail:%llu:%d", &after, &status) == 2) {
      wire.faults.push_back({0, after, static_cast<ibv_wc_status>(status)});
    } else if (std::sscanf(text, "every:%llu:%d", &after, &status) == 2 && after > 0) {
      wire.faults.push_back({0, after, static_cast<ibv_wc_status>(status), Fault::kFail, after});
    } else if (std::sscanf(text, "unplug:%llu", &after) == 1) {
      wire.faults.push_back({0, after, IBV_WC_SUCCESS, Fault::kUnplug});
    } else if (std::sscanf(text, "remove:%llu", &after) == 1) {
      wire.faults.push_back({0, after, IBV_WC_SUCCESS, Fault::kRemove});
    }
    text = std::strchr(text, ',');
    if (text) ++text;
  }
}

void fillDevices(Wire& wire) {
  if (std::exchange(wire.filled, true)) return;
  readEnvironment(wire);
  const char* wanted = std::getenv("STAND_IN_VERBS_DEVICES");
  const int count = wanted ? std::atoi(wanted) : 2;
  for (int i = 0; i < count; ++i) {
    auto device = std::make_unique<Device>();
    device->node_type = IBV_NODE_CA;
    device->transport_type = IBV_TRANSPORT_IB;
    const std::string number = std::to_string(i);
    std::strcpy(device->name, ("standin_" + number).c_str());
    std::strcpy(device->dev_name, ("uverbs" + number).c_str());
    std::strcpy(device->ibdev_path, ("/sys/class/infiniband/standin_" + number).c_str());
    // ::ffff:10.0.0.<i + 1>, as RoCE v2 has it
    device->gid.raw[10] = device->gid.raw[11] = 0xff;
    device->gid.raw[12] = 10;
    device->gid.raw[15] = static_cast<uint8_t>(i + 1);
    wire.devices.push_back(std::move(device));
  }
}

Device* deviceNamed(Wire& wire, const char* name) {
  for (auto& device : wire.devices) {
    if (!std::strcmp(device->name, name)) return device.get();
  }
  return nullptr;
}

int postSend(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  Qp& qp = *static_cast<Qp*>(base);
  for (; wr; wr = wr->next) {
    *bad = wr;
    if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_ERR) return EINVAL;
    if (wr->num_sge < 0 || wr->num_sge > static_cast<int>(qp.cap.max_send_sge)) return EINVAL;
    if (qp.sendsPosted - *qp.sendsRetired >= qp.cap.max_send_wr) return ENOMEM;
    Send send{};
    send.wr = *wr;
    std::copy_n(wr->sg_list, wr->num_sge, send.sges);
    size_t bytes = 0;
    for (int i = 0; i < wr->num_sge; ++i) bytes += send.sges[i].length;
    if (bytes > kMaxMessage) return EINVAL;
    if (wr->send_flags & IBV_SEND_INLINE) {
      if (bytes > qp.cap.max_inline_data) return EINVAL;
      for (int i = 0; i < wr->num_sge; ++i) {
        send.inlined.append(reinterpret_cast<const char*>(send.sges[i].addr), send.sges[i].length);
      }
    }
    send.index = qp.sendsPosted++;
    qp.sends.push_back(std::move(send));
  }
  if (qp.state == IBV_QPS_ERR) wire.fail(qp);
  if (wire.seed == 0) wire.advance();
  return 0;
}

int postRecv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  Qp& qp = *static_cast<Qp*>(base);
  for (; wr; wr = wr->next) {
    *bad = wr;
    if (qp.state == IBV_QPS_RESET) return EINVAL;
    if (wr->num_sge < 0 || wr->num_sge > static_cast<int>(qp.cap.max_recv_sge)) return EINVAL;
    if (qp.recvsPosted - *qp.recvsRetired >= qp.cap.max_recv_wr) return ENOMEM;
    Recv recv{};
    recv.wr = *wr;
    std::copy_n(wr->sg_list, wr->num_sge, recv.sges);
    recv.index = qp.recvsPosted++;
    qp.recvs.push_back(recv);
  }
  wire.network.retry();
  if (qp.state == IBV_QPS_ERR) wire.fail(qp);
  if (wire.seed == 0) wire.advance();
  return 0;
}

int pollCq(ibv_cq* base, int count, ibv_wc* completions) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  Cq& cq = *static_cast<Cq*>(base);
  wire.advance();
  int found = 0;
  while (found < count && !cq.entries.empty()) {
    const Cq::Entry& entry = cq.entries.front();
    if (auto retired = entry.retired.lock()) *retired = std::max(*retired, entry.upTo);
    completions[found++] = entry.wc;
    cq.entries.pop_front();
  }
  return found;
}

int requestNotify(ibv_cq* base, int) {
  std::lock_guard lock(Wire::get().mutex);
  static_cast<Cq*>(base)->armed = true;
  return 0;
}

/// Whether it is memory of a GPU that can be reached through a dma-buf alone.
bool isBeyondReach(const void* address) {
  const char* said = std::getenv("STAND_IN_VERBS_PEER_MEMORY");
  if (said == nullptr || std::strcmp(said, "0") != 0) return false;
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    if (begin <= wanted && wanted < end) return line.ends_with("/memfd:stand-in (deleted)");
  }
  return false;
}

Mr* registered(ibv_pd* pd, void* address, size_t bytes, uint64_t iova, int access) {
  // What the kernel says too: who writes from afar must be able to write here.
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
      !(access & IBV_ACCESS_LOCAL_WRITE)) {
    errno = EINVAL;
    return nullptr;
  }
  Wire& wire = Wire::get();
  wire.hasRegistered = true;
  Mr* mr = made<Mr>();
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = bytes;
  mr->iova = iova;
  mr->access = static_cast<unsigned>(access);
  mr->lkey = mr->rkey = wire.nextKey += 0x101;
  wire.memory[mr->lkey] = mr;
  return mr;
}

}  // namespace
}  // namespace stand_in

using namespace stand_in;

STAND_IN ibv_device** ibv_get_device_list(int* count) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  fillDevices(wire);
  auto** list = static_cast<ibv_device**>(std::calloc(wire.devices.size() + 1, sizeof(void*)));
  int found = 0;
  for (auto& device : wire.devices) {
    if (!device->removed) list[found++] = device.get();
  }
  if (count) *count = found;
  return list;
}

STAND_IN void ibv_free_device_list(ibv_device** list) { std::free(list); }

STAND_IN uint64_t ibv_get_device_guid(ibv_device* device) {
  return static_cast<Device*>(device)->gid.raw[15];
}

STAND_IN ibv_context* ibv_open_device(ibv_device* device) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  int ends[2];
  if (!wire.network.open() || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK)) return nullptr;
  Context* context = made<Context>();
  context->device = device;
  context->ops.poll_cq = pollCq;
  context->ops.req_notify_cq = requestNotify;
  context->ops.post_send = postSend;
  context->ops.post_recv = postRecv;
  context->cmd_fd = -1;
  context->async_fd = ends[0];
  context->eventWriter = ends[1];
  context->num_comp_vectors = 1;
  wire.contexts.push_back(context);
  return context;
}

STAND_IN int ibv_close_device(ibv_context* base) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  auto* context = static_cast<Context*>(base);
  ::close(context->async_fd);
  ::close(context->eventWriter);
  std::erase(wire.contexts, context);
  return destroy<Context>(base);
}

STAND_IN int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  std::strcpy(attributes->fw_ver, "stand-in");
  attributes->max_mr_size = 1ull << 40;
  attributes->page_size_cap = 0xfffffffffffff000;
  attributes->max_qp = 1 << 16;
  attributes->max_qp_wr = kMaxWr;
  attributes->max_sge = attributes->max_sge_rd = kMaxSge;
  attributes->max_cq = 1 << 16;
  attributes->max_cqe = kMaxCqe;
  attributes->max_mr = 1 << 16;
  attributes->max_pd = 1 << 16;
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 16;
  attributes->max_res_rd_atom = 1 << 20;
  attributes->atomic_cap = IBV_ATOMIC_HCA;
  attributes->max_pkeys = 1;
  attributes->phys_port_cnt = 1;
  return 0;
}

STAND_IN int ibv_query_port(ibv_context* context, uint8_t port, ibv_port_attr* attributes) {
  std::lock_guard lock(Wire::get().mutex);
  if (port != 1) return EINVAL;
  // What comes after `flags` is beyond what this old verb knows.
  std::memset(static_cast<void*>(attributes), 0, offsetof(ibv_port_attr, port_cap_flags2));
  attributes->state =
      static_cast<Context*>(context)->ours().linkUp ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->max_mtu = attributes->active_mtu = IBV_MTU_4096;
  attributes->gid_tbl_len = 1;
  attributes->max_msg_sz = kMaxMessage;
  attributes->pkey_tbl_len = 1;
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

STAND_IN int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *gid = static_cast<Context*>(context)->ours().gid;
  return 0;
}

STAND_IN int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                               ibv_gid_entry* entry, uint32_t, size_t) {
  if (port != 1 || index != 0) return ENODATA;
  *entry = {static_cast<Context*>(context)->ours().gid, 0, 1, IBV_GID_TYPE_ROCE_V2, 0};
  return 0;
}

STAND_IN int ibv_get_async_event(ibv_context* base, ibv_async_event* event) {
  std::lock_guard lock(Wire::get().mutex);
  auto* context = static_cast<Context*>(base);
  char one;
  if (::read(context->async_fd, &one, 1) != 1 || context->events.empty()) return -1;
  *event = context->events.front();
  context->events.pop_front();
  return 0;
}

STAND_IN void ibv_ack_async_event(ibv_async_event*) {}

STAND_IN const char* ibv_event_type_str(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return "CQ error";
    case IBV_EVENT_QP_FATAL:
      return "local work queue catastrophic error";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "local access violation work queue error";
    case IBV_EVENT_DEVICE_FATAL:
      return "local catastrophic error";
    case IBV_EVENT_PORT_ERR:
      return "port error";
    case IBV_EVENT_PORT_ACTIVE:
      return "port active";
    default:
      return "event";
  }
}

STAND_IN const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_SUCCESS ? "success" : "failure of the stand-in";
}

STAND_IN ibv_pd* ibv_alloc_pd(ibv_context* context) {
  std::lock_guard lock(Wire::get().mutex);
  Pd* pd = made<Pd>();
  pd->context = context;
  return pd;
}

STAND_IN int ibv_dealloc_pd(ibv_pd* pd) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  for (const auto& [key, mr] : wire.memory) {
    if (mr->pd == pd) return EBUSY;
  }
  return destroy<Pd>(pd);
}

STAND_IN ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t bytes, int access) {
  if (isBeyondReach(address)) {
    errno = EFAULT;
    return nullptr;
  }
  std::lock_guard lock(Wire::get().mutex);
  return registered(pd, address, bytes, reinterpret_cast<uint64_t>(address), access);
}

STAND_IN ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                                   int access) {
  std::lock_guard lock(Wire::get().mutex);
  // As the kernel: both addresses are at the same place of their pages.
  const uint64_t inPage = offset % kPage;
  if (inPage != iova % kPage) {
    errno = EINVAL;
    return nullptr;
  }
  void* pages = ::mmap(nullptr, inPage + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                       static_cast<off_t>(offset - inPage));
  if (pages == MAP_FAILED) return nullptr;
  Mr* mr = registered(pd, static_cast<char*>(pages) + inPage, bytes, iova, access);
  if (!mr) {
    ::munmap(pages, inPage + bytes);
    return nullptr;
  }
  mr->mapped = true;
  return mr;
}

STAND_IN int ibv_dereg_mr(ibv_mr* base) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  wire.memory.erase(base->lkey);
  if (static_cast<Mr*>(base)->mapped) {
    const uint64_t inPage = reinterpret_cast<uint64_t>(base->addr) % kPage;
    ::munmap(static_cast<char*>(base->addr) - inPage, inPage + base->length);
  }
  return destroy<Mr>(base);
}

STAND_IN ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  std::lock_guard lock(Wire::get().mutex);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC)) return nullptr;
  auto* channel = made<ibv_comp_channel>();
  *channel = {context, ends[0], ends[1]};  // its count of references is nobody's business
  return channel;
}

STAND_IN int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  std::lock_guard lock(Wire::get().mutex);
  ::close(channel->fd);
  ::close(channel->refcnt);
  return destroy<ibv_comp_channel>(channel);
}

STAND_IN int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
  if (::read(channel->fd, cq, sizeof(void*)) != sizeof(void*)) return -1;
  *context = (*cq)->cq_context;
  return 0;
}

STAND_IN void ibv_ack_cq_events(ibv_cq*, unsigned) {}

STAND_IN ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cqContext,
                               ibv_comp_channel* channel, int) {
  std::lock_guard lock(Wire::get().mutex);
  if (entries < 1 || entries > kMaxCqe) {
    errno = EINVAL;
    return nullptr;
  }
  Cq* cq = made<Cq>();
  cq->context = context;
  cq->cq_context = cqContext;
  cq->channel = channel;
  cq->cqe = entries;
  return cq;
}

STAND_IN int ibv_destroy_cq(ibv_cq* cq) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  for (const Qp* qp : wire.order) {
    if (qp->send_cq == cq || qp->recv_cq == cq) return EBUSY;
  }
  return destroy<Cq>(cq);
}

STAND_IN ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  ibv_qp_cap& cap = attributes->cap;
  if (attributes->qp_type != IBV_QPT_RC || cap.max_send_wr > kMaxWr || cap.max_recv_wr > kMaxWr ||
      cap.max_send_sge > kMaxSge || cap.max_recv_sge > kMaxSge ||
      cap.max_inline_data > kMaxInline) {
    errno = EINVAL;
    return nullptr;
  }
  Qp* qp = made<Qp>();
  qp->context = pd->context;
  qp->pd = pd;
  qp->qp_context = attributes->qp_context;
  qp->send_cq = attributes->send_cq;
  qp->recv_cq = attributes->recv_cq;
  qp->qp_type = attributes->qp_type;
  qp->cap = cap;
  qp->signalAll = attributes->sq_sig_all;
  qp->qp_num = wire.freeQpNum();
  wire.qps[qp->qp_num] = qp;
  wire.order.push_back(qp);
  return qp;
}

STAND_IN int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attributes, int mask) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  Qp& qp = *static_cast<Qp*>(base);
  constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  constexpr int kRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int kRts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                       IBV_QP_MAX_QP_RD_ATOMIC;
  if (!(mask & IBV_QP_STATE)) return EINVAL;
  const int rest = mask & ~IBV_QP_STATE;
  ibv_qp_attr& known = qp.attributes;
  if (attributes->qp_state == IBV_QPS_ERR) {
    wire.fail(qp);
    if (wire.seed == 0) wire.advance();
    return 0;
  }
  if (attributes->qp_state == IBV_QPS_INIT && qp.state == IBV_QPS_RESET && rest == kInit) {
    if (attributes->port_num != 1) return EINVAL;
    known.qp_access_flags = attributes->qp_access_flags;
  } else if (attributes->qp_state == IBV_QPS_RTR && qp.state == IBV_QPS_INIT && rest == kRtr) {
    known.dest_qp_num = attributes->dest_qp_num;
    known.ah_attr = attributes->ah_attr;
    if (wire.qps.count(known.dest_qp_num) == 0) wire.network.start();
  } else if (attributes->qp_state == IBV_QPS_RTS && qp.state == IBV_QPS_RTR && rest == kRts) {
    known.rnr_retry = attributes->rnr_retry;
  } else {
    return EINVAL;
  }
  qp.state = attributes->qp_state;
  if (wire.seed == 0) wire.advance();
  return 0;
}

STAND_IN int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* initial) {
  std::lock_guard lock(Wire::get().mutex);
  *attributes = static_cast<Qp*>(qp)->attributes;
  attributes->qp_state = qp->state;
  *initial = {};
  initial->cap = static_cast<Qp*>(qp)->cap;
  return 0;
}

STAND_IN int ibv_destroy_qp(ibv_qp* base) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  Qp* qp = static_cast<Qp*>(base);
  for (ibv_cq* cq : {qp->send_cq, qp->recv_cq}) {
    std::erase_if(static_cast<Cq*>(cq)->entries,
                  [&](const Cq::Entry& entry) { return entry.wc.qp_num == qp->qp_num; });
  }
  wire.qps.erase(qp->qp_num);
  std::erase(wire.order, qp);
  return destroy<Qp>(base);
}

STAND_IN int ibv_fork_init() {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  if (!wire.forksSafe && wire.hasRegistered) return EINVAL;
  wire.forksSafe = true;
  return 0;
}

STAND_IN ibv_fork_status ibv_is_fork_initialized() {
  return Wire::get().forksSafe ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}

STAND_IN void standInVerbsReset(uint64_t seed) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  wire.seed = seed;
  wire.random.seed(seed);
  wire.executed = 0;
  wire.faults.clear();
  for (auto& device : wire.devices) {
    device->linkUp = true;
    device->removed = false;
  }
}

STAND_IN void standInVerbsStep() {
  std::lock_guard lock(Wire::get().mutex);
  Wire::get().advance();
}

STAND_IN void standInVerbsFail(uint32_t qpNum, uint64_t after, int status) {
  std::lock_guard lock(Wire::get().mutex);
  Wire::get().faults.push_back({qpNum, after, static_cast<ibv_wc_status>(status)});
}

STAND_IN void standInVerbsLink(const char* name, int up) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  Device* device = deviceNamed(wire, name);
  if (!device) return;
  wire.plug(*device, up);
}

STAND_IN void standInVerbsRemove(const char* name) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  Device* device = deviceNamed(wire, name);
  if (!device) return;
  wire.remove(*device);
  if (wire.seed == 0) wire.advance();
}

STAND_IN void standInVerbsBreak(uint32_t qpNum, int event) {
  Wire& wire = Wire::get();
  std::lock_guard lock(wire.mutex);
  const auto found = qpNum == 0 ? wire.qps.begin() : wire.qps.find(qpNum);
  if (found == wire.qps.end()) return;
  Qp& qp = *found->second;
  if (event == IBV_EVENT_CQ_ERR) {
    wire.overrun(*static_cast<Cq*>(qp.send_cq));
  } else {
    ibv_async_event told{};
    told.element.qp = &qp;
    told.event_type = static_cast<ibv_event_type>(event);
    wire.raise(qp.context, told);
    wire.fail(qp);
  }
  if (wire.seed == 0) wire.advance();
}

STAND_IN uint64_t standInVerbsExecuted() {
  std::lock_guard lock(Wire::get().mutex);
  return Wire::get().executed;
}

STAND_IN int standInVerbsObjects() { return Wire::get().objects; }

STAND_IN int standInVerbsForksSafe() {
  std::lock_guard lock(Wire::get().mutex);
  return Wire::get().forksSafe;
}
