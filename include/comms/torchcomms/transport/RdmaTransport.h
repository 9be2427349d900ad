#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// Transfers between the memory of two processes over RDMA. Nothing of torch, folly or CUDA is
// needed to include this; a program links libtorchcomms.

namespace torch::comms {

/// How something ended.
enum commResult_t {
  commSuccess = 0,
  commSystemError = 2,  ///< a device, a key, or memory that cannot be registered
  commInternalError = 3,
  commInvalidArgument = 4,  ///< the call was wrong, and has changed nothing
  commRemoteError = 6,      ///< the peer has ended, or cannot be reached
  commTimeout = 100,        ///< nothing has moved for too long
  commAborted = 101,        ///< the transport was destroyed
};

namespace detail {
struct RdmaFutureState;
struct RdmaMemoryState;
struct RdmaTransportState;
struct EventBaseState;
}  // namespace detail

class RdmaFuture;

/// Specialized for futures of other libraries, which a RdmaFuture converts to; see
/// RdmaTransportFolly.h.
template <typename Future>
struct RdmaFutureAs;

/// The end of a transfer. Any thread may wait for it; copies are of one transfer. A function of
/// onReady() cannot wait for a transfer that has not ended, and a forked child not for one of its
/// parent's: get() returns commInvalidArgument there, and wait() false, at once.
class RdmaFuture {
 public:
  RdmaFuture() = default;
  bool valid() const { return state_ != nullptr; }
  bool isReady() const;
  /// Whether it has ended within `timeout`.
  bool wait(std::chrono::nanoseconds timeout) const;
  /// Waits for the end.
  commResult_t get() const;
  /// Waits for the end: why it failed, for people. Empty after a success.
  std::string error() const;
  /// Calls `function` at the end, on the transport's thread, or here if it has ended. At most one
  /// function.
  void onReady(std::function<void(commResult_t)> function) const;

  template <typename Future>
  requires requires(const RdmaFuture& future) { RdmaFutureAs<Future>::from(future); }
  operator Future() const { return RdmaFutureAs<Future>::from(*this); }

 private:
  friend class RdmaTransport;
  std::shared_ptr<const detail::RdmaFutureState> state_;
};

/// What many transfers have ended with, in their order.
class RdmaFutures {
 public:
  explicit RdmaFutures(std::vector<RdmaFuture> futures) : futures_(std::move(futures)) {}
  std::vector<commResult_t> get() const;

 private:
  std::vector<RdmaFuture> futures_;
};
inline RdmaFutures collectAll(std::vector<RdmaFuture> futures) {
  return RdmaFutures(std::move(futures));
}

/// Drives transports; not to be made by itself.
class EventBase {
 public:
  EventBase(const EventBase&) = delete;
  EventBase& operator=(const EventBase&) = delete;

 private:
  friend class RdmaTransport;
  friend class ScopedEventBaseThread;
  explicit EventBase(std::shared_ptr<detail::EventBaseState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::EventBaseState> state_;
};

/// A thread that drives the transports which are given its event base. They may outlive it.
class ScopedEventBaseThread {
 public:
  ScopedEventBaseThread();
  EventBase* getEventBase() { return &base_; }

 private:
  EventBase base_;
};

/// Memory of the peer's. It is passed on as it is, address and key.
struct RdmaRemoteBuffer {
  void* ptr = nullptr;
  size_t len = 0;  ///< 0: as far as the key reaches
  std::string accessKey{};
};

/// Memory that is registered at the RDMA devices while this lives: for the transfers of this
/// process, and for peers that are connected and have its key. Its destructor waits for the
/// transfers of this process that use it.
class RdmaMemory {
 public:
  /// A part of it that can be sent. It keeps the registration, not the memory.
  class View {
   public:
    const void* data() const { return data_; }
    size_t size() const { return size_; }

   protected:
    friend class RdmaMemory;
    friend class RdmaTransport;
    View(const RdmaMemory& memory, uintptr_t data, size_t size);
    std::shared_ptr<detail::RdmaMemoryState> state_;
    void* data_;
    size_t size_;
  };
  /// A part of it that can be received into.
  class MutableView : public View {
   public:
    void* mutable_data() const { return data_; }

   private:
    friend class RdmaMemory;
    using View::View;
  };

  /// `cudaDev` is the CUDA device whose memory it is, -1 for the host's. With `cacheReg` memory
  /// that another RdmaMemory with `owner` holds is not registered again. `owner` keeps the memory.
  /// Throws std::exception with what the system said.
  RdmaMemory(const void* buf, size_t len, int cudaDev = -1, bool cacheReg = false,
             std::shared_ptr<void> owner = {});
  ~RdmaMemory();
  RdmaMemory(RdmaMemory&&) noexcept = default;
  RdmaMemory& operator=(RdmaMemory&&) = delete;

  /// [offset, offset + length). Throws std::exception if that is not inside.
  View createView(size_t offset, size_t length) const;
  View createView(const void* ptr, size_t length) const;
  /// Of other integers, a literal 0 too, which would do for a pointer as well.
  template <std::integral Offset>
  View createView(Offset offset, size_t length) const {
    return createView(static_cast<size_t>(offset), length);
  }
  View createView() const { return createView(size_t{0}, length()); }
  MutableView createMutableView(size_t offset, size_t length);
  MutableView createMutableView(void* ptr, size_t length);
  template <std::integral Offset>
  MutableView createMutableView(Offset offset, size_t length) {
    return createMutableView(static_cast<size_t>(offset), length);
  }
  MutableView createMutableView() { return createMutableView(size_t{0}, length()); }

  bool contains(const void* ptr, size_t len) const;
  const void* data() const;
  size_t length() const;
  int getDevice() const;
  /// Tells one registration of this process from another.
  void* localKey() const;
  /// What a peer needs to reach it; RdmaRemoteBuffer::accessKey.
  std::string remoteKey() const;
  RdmaRemoteBuffer toRemoteBuffer() const {
    return {const_cast<void*>(data()), length(), remoteKey()};
  }
  /// Whether another RdmaMemory had registered it before.
  bool reusedRegistration() const { return reused_; }

 private:
  std::shared_ptr<detail::RdmaMemoryState> state_;
  bool reused_ = false;
};

/// A connection of two processes over RDMA: each reads and writes the other's memory, without
/// copies. Any thread may call anything at any time; destroying it ends what is under way.
class RdmaTransport {
 public:
  /// Whether this machine has an RDMA device that can be used.
  static bool supported();

  /// `cudaDev` is the CUDA device for whose memory it is meant, whose nearest RDMA devices it uses
  /// unless CTRAN_IB_HCA names some; -1 for the host's, which uses all. Without an event
  /// base, a thread that all transports share drives it. `timeout`: when nothing has moved for so
  /// long while transfers are under way, they fail. Throws std::exception where supported() is
  /// false.
  explicit RdmaTransport(int cudaDev = -1, EventBase* evb = nullptr,
                         std::chrono::milliseconds timeout = std::chrono::seconds(60));
  ~RdmaTransport();
  RdmaTransport(const RdmaTransport&) = delete;
  RdmaTransport& operator=(const RdmaTransport&) = delete;

  /// What the peer's connect() takes.
  std::string bind();
  /// Once. Does not wait for the peer; what is sent before it has connected is tried again for
  /// about two seconds. `why`, if it is given, is told what is wrong.
  commResult_t connect(const std::string& peerUrl, std::string* why = nullptr);
  bool connected() const;

  /// Ready when the data are in the peer's memory. With `notify`, one waitForWrite() there becomes
  /// ready when the data of this and of all writes before are in place.
  RdmaFuture write(const RdmaMemory::View& localBuffer, const RdmaRemoteBuffer& remoteBuffer,
                   bool notify);
  /// Ready when the data are here. Not ordered with writes.
  RdmaFuture read(const RdmaMemory::MutableView& localBuffer, const RdmaRemoteBuffer& remoteBuffer);
  /// Each write with `notify` makes one ready.
  RdmaFuture waitForWrite();

 private:
  std::unique_ptr<detail::RdmaTransportState> state_;
};

}  // namespace torch::comms
