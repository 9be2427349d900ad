#pragma once

#include <unistd.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ctran/verbs/library.h"

/// The verbs' objects, each owned by one C++ object of the seeds' name. An object must be destroyed
/// before the one it was made from (MR, QP before PD; QP before CQ; PD, CQ before context), as
/// members of one class are when they are declared in that order.
///
/// Limits of the device are checked before it is asked, so that an error names the limit.
namespace ibverbx {

/// Owns what a verb has made, and destroys it with another. A forked child destroys nothing: the
/// kernel would take it from the parent, who made it.
template <typename T, int (*VerbsLibrary::*Destroy)(T*)>
class IbvOwned {
 public:
  explicit IbvOwned(T* object = nullptr) : object_(object) {}
  IbvOwned(IbvOwned&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), process_(other.process_) {}
  IbvOwned& operator=(IbvOwned&& other) noexcept {
    std::swap(object_, other.object_);
    std::swap(process_, other.process_);
    return *this;
  }
  ~IbvOwned() {
    if (object_ && process_ == ::getpid()) (VerbsLibrary::get().*Destroy)(object_);
  }
  T* get() const { return object_; }

 private:
  T* object_;
  int process_ = ::getpid();
};

/// Registered memory: a remote end reaches it by `rkey`, for what its access flags say.
class IbvMr {
 public:
  ibv_mr* mr() const { return owned_.get(); }
  uint32_t lkey() const { return mr()->lkey; }
  uint32_t rkey() const { return mr()->rkey; }

 private:
  friend class IbvPd;
  explicit IbvMr(ibv_mr* mr) : owned_(mr) {}
  IbvOwned<ibv_mr, &VerbsLibrary::dereg_mr> owned_;
};

/// Tells of completions: readable when a queue that has been armed gets one.
class IbvCompChannel {
 public:
  ibv_comp_channel* channel() const { return owned_.get(); }
  int fd() const { return channel()->fd; }
  /// Takes what it has told, so that it is not readable any more; how many events. Never blocks.
  int drain();

 private:
  friend class IbvContext;
  explicit IbvCompChannel(ibv_comp_channel* channel) : owned_(channel) {}
  IbvOwned<ibv_comp_channel, &VerbsLibrary::destroy_comp_channel> owned_;
};

/// A completion queue. One thread polls it at a time.
class IbvCq {
 public:
  /// Its channel tells of the next completion, once. What came before this may not be told of: poll
  /// once more.
  Maybe requestNotify() {
    if (const int errnum = cq()->context->ops.req_notify_cq(cq(), 0)) {
      return errorOf(errnum, "ibv_req_notify_cq");
    }
    return Unit{};
  }
  ibv_cq* cq() const { return owned_.get(); }
  /// How many of `completions` were filled; an error is one of the queue itself.
  Expected<int> pollCq(std::span<ibv_wc> completions) {
    const int count =
        cq()->context->ops.poll_cq(cq(), static_cast<int>(completions.size()), completions.data());
    if (count < 0) return errorOf(EIO, "ibv_poll_cq");
    return count;
  }

 private:
  friend class IbvContext;
  explicit IbvCq(ibv_cq* cq) : owned_(cq) {}
  IbvOwned<ibv_cq, &VerbsLibrary::destroy_cq> owned_;
};

/// The other end of a reliable connection, and the way there.
struct IbvRtrOptions {
  uint32_t remoteQpNum = 0;
  ibv_gid remoteGid = {};  ///< used where `global`
  uint16_t remoteLid = 0;  ///< of InfiniBand; 0 for RoCE
  bool global = true;      ///< RoCE always
  uint8_t port = 1;
  uint8_t gidIndex = 0;
  uint8_t trafficClass = 0;
  uint8_t serviceLevel = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  uint32_t psn = 0;
  uint8_t maxDestReadAtomic = 1;  ///< reads and atomics of the remote end under way here
  uint8_t minRnrTimer = 12;
};

struct IbvRtsOptions {
  uint8_t timeout = 14;    ///< 4.096 us * 2^timeout until a packet is sent again
  uint8_t retryCount = 6;  ///< at most 7, which is for ever on soft-RoCE
  uint8_t rnrRetry = 7;    ///< 7 is for ever
  uint32_t psn = 0;
  uint8_t maxReadAtomic = 1;  ///< reads and atomics of ours under way
};

/// A queue pair of a reliable connection: RESET, then init(), toRtr(), toRts(), in that order.
class IbvQp {
 public:
  ibv_qp* qp() const { return owned_.get(); }
  uint32_t qpNum() const { return qp()->qp_num; }
  ibv_qp_state state() const { return state_; }
  const ibv_qp_cap& capacity() const { return capacity_; }

  /// RESET to INIT: receives can be posted from here on. `access` is what the remote end may do.
  Maybe init(uint8_t port, unsigned access, uint16_t pkeyIndex = 0);
  /// INIT to RTR: what the remote end sends arrives from here on.
  Maybe toRtr(const IbvRtrOptions& options);
  /// RTR to RTS: sends can be posted.
  Maybe toRts(const IbvRtsOptions& options);
  /// To ERR, from any state: everything that is posted completes with IBV_WC_WR_FLUSH_ERR.
  Maybe toError();

  /// Posts a list. On an error `*bad` is the first that was not posted.
  Maybe postSend(ibv_send_wr* wr, ibv_send_wr** bad) {
    if (const int errnum = qp()->context->ops.post_send(qp(), wr, bad)) {
      return errorOf(errnum, "ibv_post_send");
    }
    return Unit{};
  }
  Maybe postRecv(ibv_recv_wr* wr, ibv_recv_wr** bad) {
    if (const int errnum = qp()->context->ops.post_recv(qp(), wr, bad)) {
      return errorOf(errnum, "ibv_post_recv");
    }
    return Unit{};
  }

 private:
  friend class IbvPd;
  IbvQp(ibv_qp* qp, const ibv_qp_cap& capacity, std::shared_ptr<const ibv_device_attr> limits)
      : owned_(qp), capacity_(capacity), limits_(std::move(limits)) {}
  Maybe modify(ibv_qp_attr& attributes, int mask, ibv_qp_state from);

  IbvOwned<ibv_qp, &VerbsLibrary::destroy_qp> owned_;
  ibv_qp_cap capacity_;
  std::shared_ptr<const ibv_device_attr> limits_;
  ibv_qp_state state_ = IBV_QPS_RESET;
};

class IbvPd {
 public:
  ibv_pd* pd() const { return owned_.get(); }
  Expected<IbvMr> regMr(void* address, size_t bytes, unsigned access) const;
  /// Memory of another device, by a dma-buf that it has exported. `iova` is the address that remote
  /// ends use for the byte at `offset`.
  Expected<IbvMr> regDmabufMr(uint64_t offset, size_t bytes, uint64_t iova, int fd,
                              unsigned access) const;
  /// A queue pair of type RC. What the device has made of `attributes->cap` is written back.
  Expected<IbvQp> createQp(ibv_qp_init_attr* attributes) const;

 private:
  friend class IbvContext;
  IbvPd(ibv_pd* pd, std::shared_ptr<const ibv_device_attr> limits)
      : owned_(pd), limits_(std::move(limits)) {}
  IbvOwned<ibv_pd, &VerbsLibrary::dealloc_pd> owned_;
  std::shared_ptr<const ibv_device_attr> limits_;
};

/// Something that happened to a device, a port, a queue pair or a completion queue.
struct IbvAsyncEvent {
  ibv_event_type type = IBV_EVENT_CQ_ERR;
  int port = 0;                ///< of a port's event
  uint32_t qpNum = 0;          ///< of a queue pair's event
  std::string text;            ///< what the library calls it
  const ibv_cq* cq = nullptr;  ///< of a completion queue's event, which may be destroyed by now
};

/// An open device.
class IbvContext {
 public:
  ibv_context* context() const { return owned_.get(); }
  const char* name() const { return context()->device->name; }
  /// Its limits, asked for when it was opened.
  const ibv_device_attr& attributes() const { return *limits_; }
  Expected<ibv_port_attr> queryPort(uint8_t port) const;
  /// An entry of the GID table. Its type is known where rdma-core is 33 or later; else it is
  /// IBV_GID_TYPE_IB.
  Expected<ibv_gid_entry> queryGid(uint8_t port, int index) const;
  Expected<IbvPd> allocPd() const;
  /// `channel`, if there is one, outlives it.
  Expected<IbvCq> createCq(int entries, int vector = 0,
                           const IbvCompChannel* channel = nullptr) const;
  Expected<IbvCompChannel> createCompChannel() const;
  /// The next event, or nothing if there is none now.
  Expected<std::optional<IbvAsyncEvent>> pollAsyncEvent() const;
  /// Readable when there is an event.
  int asyncFd() const { return context()->async_fd; }

 private:
  friend class IbvDevice;
  IbvContext(ibv_context* context, std::shared_ptr<const ibv_device_attr> limits)
      : owned_(context), limits_(std::move(limits)) {}
  IbvOwned<ibv_context, &VerbsLibrary::close_device> owned_;
  std::shared_ptr<const ibv_device_attr> limits_;
};

/// A device that could be opened.
class IbvDevice {
 public:
  /// The devices of this machine; an empty list is no error.
  static Expected<std::vector<IbvDevice>> ibvGetDeviceList();
  const char* name() const { return device_->name; }
  /// Its directory below /sys/class/infiniband, from which its place (PCI, NUMA) can be read.
  const char* sysfsPath() const { return device_->ibdev_path; }
  Expected<IbvContext> open() const;

 private:
  IbvDevice(std::shared_ptr<ibv_device*> list, ibv_device* device)
      : list_(std::move(list)), device_(device) {}
  std::shared_ptr<ibv_device*> list_;
  ibv_device* device_;
};

}  // namespace ibverbx
