#include "mscclpp/memory_channel.hpp"

namespace mscclpp {

BaseMemoryChannel::DeviceHandle BaseMemoryChannel::deviceHandle() const {
  if (!semaphore_) throw Error("the channel has no semaphore", ErrorCode::InvalidUsage);
  return {semaphore_->deviceHandle()};
}

MemoryChannel::MemoryChannel(std::shared_ptr<MemoryDevice2DeviceSemaphore> semaphore,
                             const RegisteredMemory& dst, const RegisteredMemory& src,
                             void* packetBuffer)
    : BaseMemoryChannel(std::move(semaphore)), dst_(dst), src_(src), packetBuffer_(packetBuffer) {
  dst_.data();  // throws if threads cannot reach it
}

MemoryChannel::MemoryChannel(const Semaphore& semaphore, const RegisteredMemory& dst,
                             const RegisteredMemory& src, void* packetBuffer)
    : MemoryChannel(std::make_shared<MemoryDevice2DeviceSemaphore>(semaphore), dst, src,
                    packetBuffer) {}

MemoryChannel::DeviceHandle MemoryChannel::deviceHandle() const {
  DeviceHandle handle;
  handle.semaphore_ = BaseMemoryChannel::deviceHandle().semaphore_;
  handle.dst_ = dst_.data();
  handle.src_ = src_.data();
  handle.packetBuffer_ = packetBuffer_;
  return handle;
}

}  // namespace mscclpp
