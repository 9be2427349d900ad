#include "mscclpp/port_channel.hpp"

#include <deque>
#include <mutex>

namespace mscclpp {

class ProxyService::Impl {
 public:
  ProxyHandlerResult handle(const ProxyTrigger& packed) {
    const ChannelTrigger trigger(packed);
    const std::shared_ptr<Host2DeviceSemaphore> semaphore = semaphoreAt(trigger.semaphore);
    Connection& connection = semaphore->connection();
    if ((trigger.type & TriggerData) != 0) {
      connection.write(memoryAt(trigger.dst), trigger.dstOffset, memoryAt(trigger.src),
                       trigger.srcOffset, trigger.bytes);
    }
    if ((trigger.type & TriggerFlag) != 0) semaphore->signal();
    if ((trigger.type & TriggerSync) != 0) connection.flush();
    return ProxyHandlerResult::Continue;
  }

  SemaphoreId add(std::shared_ptr<Host2DeviceSemaphore> semaphore) {
    const std::lock_guard lock(mutex_);
    checkRoom(semaphores_.size());
    semaphores_.push_back(std::move(semaphore));
    return static_cast<SemaphoreId>(semaphores_.size() - 1);
  }

  MemoryId add(const RegisteredMemory& memory) {
    const std::lock_guard lock(mutex_);
    checkRoom(memories_.size());
    memories_.push_back(memory);
    return static_cast<MemoryId>(memories_.size() - 1);
  }

  MemoryId nextMemory() const {
    const std::lock_guard lock(mutex_);
    return static_cast<MemoryId>(memories_.size());
  }

  /// Throws Error(InvalidUsage) if it has no such memory.
  void checkMemory(MemoryId id) const { memoryAt(id); }

  std::shared_ptr<Host2DeviceSemaphore> semaphoreAt(SemaphoreId id) const {
    const std::lock_guard lock(mutex_);
    return at(semaphores_, id, "semaphore");
  }

 private:
  RegisteredMemory memoryAt(MemoryId id) const {
    const std::lock_guard lock(mutex_);
    return at(memories_, id, "memory");
  }

  template <class T>
  static const T& at(const std::deque<T>& all, size_t id, const char* what) {
    if (id < all.size()) return all[id];
    throw Error(std::string("a proxy service has no ") + what + " " + std::to_string(id),
                ErrorCode::InvalidUsage);
  }

  static void checkRoom(size_t count) {
    if (count > ChannelTrigger::kIdMask) {
      throw Error("a proxy service has at most 2^20 semaphores and memories",
                  ErrorCode::InvalidUsage);
    }
  }

  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Host2DeviceSemaphore>> semaphores_;
  std::deque<RegisteredMemory> memories_;
};

ProxyService::ProxyService(int fifoSize, DeviceType kernels)
    : impl_(std::make_shared<Impl>()),
      proxy_(std::make_shared<Proxy>(
          [impl = impl_](const ProxyTrigger& trigger) { return impl->handle(trigger); }, fifoSize,
          kernels)) {}
ProxyService::~ProxyService() = default;

SemaphoreId ProxyService::buildAndAddSemaphore(Communicator& communicator,
                                               const Connection& connection) {
  return addSemaphore(std::make_shared<Host2DeviceSemaphore>(communicator, connection));
}
SemaphoreId ProxyService::addSemaphore(const Semaphore& semaphore) {
  return addSemaphore(std::make_shared<Host2DeviceSemaphore>(semaphore));
}
SemaphoreId ProxyService::addSemaphore(std::shared_ptr<Host2DeviceSemaphore> semaphore) {
  semaphore->alsoEndsBy(proxy_->fifo()->limit());
  return impl_->add(std::move(semaphore));
}
MemoryId ProxyService::addMemory(const RegisteredMemory& memory) { return impl_->add(memory); }
MemoryId ProxyService::nextMemoryId(uint32_t count) const {
  return impl_->nextMemory() + count - 1;
}

std::shared_ptr<Host2DeviceSemaphore> ProxyService::semaphore(SemaphoreId id) const {
  return impl_->semaphoreAt(id);
}
BasePortChannel ProxyService::basePortChannel(SemaphoreId id) {
  return {id, semaphore(id), proxy_};
}
PortChannel ProxyService::portChannel(SemaphoreId id, MemoryId dst, MemoryId src) {
  impl_->checkMemory(dst);
  impl_->checkMemory(src);
  return {id, semaphore(id), proxy_, dst, src};
}

void ProxyService::startProxy(bool blocking) { proxy_->start(blocking); }
void ProxyService::stopProxy() { proxy_->stop(); }

BasePortChannel::DeviceHandle BasePortChannel::deviceHandle() const {
  if (!semaphore_) throw Error("the channel has no semaphore", ErrorCode::InvalidUsage);
  DeviceHandle handle;
  handle.semaphoreId_ = id_;
  handle.semaphore_ = semaphore_->deviceHandle();
  handle.fifo_ = proxy_->fifo()->deviceHandle();
  return handle;
}

PortChannel::DeviceHandle PortChannel::deviceHandle() const {
  const BasePortChannel::DeviceHandle base = BasePortChannel::deviceHandle();
  DeviceHandle handle;
  handle.semaphoreId_ = base.semaphoreId_;
  handle.semaphore_ = base.semaphore_;
  handle.fifo_ = base.fifo_;
  handle.dst_ = dst_;
  handle.src_ = src_;
  return handle;
}

}  // namespace mscclpp
