#include "mscclpp/semaphore.hpp"

namespace mscclpp {
namespace {

Semaphore build(Communicator& communicator, const Connection& connection) {
  const int rank = communicator.remoteRankOf(connection);
  return communicator.buildSemaphore(connection, rank, communicator.tagOf(connection)).get();
}

uint64_t* word(const RegisteredMemory& memory) { return static_cast<uint64_t*>(memory.data()); }

void raise(Semaphore& semaphore, uint64_t& sent) {
  semaphore.connection().updateAndSync(semaphore.remoteMemory(), 0, &sent, sent + 1);
}

}  // namespace

Host2DeviceSemaphore::Host2DeviceSemaphore(Communicator& communicator, const Connection& connection)
    : Host2DeviceSemaphore(build(communicator, connection)) {}
Host2DeviceSemaphore::Host2DeviceSemaphore(const Semaphore& semaphore)
    : semaphore_(semaphore), expected_(semaphore_.makeExpected()) {}
Connection& Host2DeviceSemaphore::connection() { return semaphore_.connection(); }
void Host2DeviceSemaphore::signal() { raise(semaphore_, sent_); }
void Host2DeviceSemaphore::alsoEndsBy(std::shared_ptr<WaitLimit> limit) {
  semaphore_.alsoEndsBy(std::move(limit));
}
Host2DeviceSemaphore::DeviceHandle Host2DeviceSemaphore::deviceHandle() const {
  return {word(semaphore_.localMemory()), expected_.get(), semaphore_.limit()};
}

Host2HostSemaphore::Host2HostSemaphore(Communicator& communicator, const Connection& connection)
    : Host2HostSemaphore(build(communicator, connection)) {}
Host2HostSemaphore::Host2HostSemaphore(const Semaphore& semaphore) : semaphore_(semaphore) {}
Connection& Host2HostSemaphore::connection() { return semaphore_.connection(); }
void Host2HostSemaphore::signal() { raise(semaphore_, sent_); }
bool Host2HostSemaphore::poll() {
  if (loadAcquireSystem(word(semaphore_.localMemory())) <= expected_) return false;
  ++expected_;
  return true;
}
void Host2HostSemaphore::wait(int64_t maxSpinCount) {
  waitUntil([this] { return poll(); }, semaphore_.limit(), maxSpinCount);
}

MemoryDevice2DeviceSemaphore::MemoryDevice2DeviceSemaphore(Communicator& communicator,
                                                           const Connection& connection)
    : MemoryDevice2DeviceSemaphore(build(communicator, connection)) {}
MemoryDevice2DeviceSemaphore::MemoryDevice2DeviceSemaphore(const Semaphore& semaphore)
    : semaphore_(semaphore), expected_(semaphore_.makeExpected()) {
  if (const Transport transport = semaphore_.connection().transport();
      transport != Transport::CudaIpc) {
    throw Error("threads raise semaphores of CudaIpc connections alone, not of " +
                    to_string(transport) + ": take a port channel, or Host2DeviceSemaphore",
                ErrorCode::InvalidUsage);
  }
}
Connection& MemoryDevice2DeviceSemaphore::connection() { return semaphore_.connection(); }
MemoryDevice2DeviceSemaphore::DeviceHandle MemoryDevice2DeviceSemaphore::deviceHandle() const {
  DeviceHandle handle;
  handle.inboundToken = word(semaphore_.localMemory());
  handle.remoteInboundToken = word(semaphore_.remoteMemory());
  handle.expectedInboundToken = expected_.get();
  handle.limit = semaphore_.limit();
  return handle;
}

}  // namespace mscclpp
