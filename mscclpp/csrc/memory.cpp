#include "memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "ctran/window.h"
#include "engine_errors.h"
#include "mscclpp/atomic_device.hpp"
#include "wire.h"

namespace mscclpp {
namespace {

/// Maps the file of another process of this host. Throws if it cannot be had.
std::shared_ptr<std::byte> mapFileOf(const MemoryName& name) {
  const std::string path =
      "/proc/" + std::to_string(name.owner.pid) + "/fd/" + std::to_string(name.descriptor);
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const int error = errno;
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    throw SysError("memory of process " + std::to_string(name.owner.pid) +
                       " cannot be mapped: its process, or the memory, is gone, or may not be "
                       "looked at (" +
                       path + ")",
                   error);
  }
  if (status.st_dev != name.device || status.st_ino != name.inode) {
    throw Error("memory of process " + std::to_string(name.owner.pid) + " was freed meanwhile",
                ErrorCode::RemoteError);
  }
  try {
    return ctran::api::mapShared(file.get(), name.fileBytes);
  } catch (const std::exception& problem) {
    throw Error(problem.what(), ErrorCode::RemoteError);
  }
}

bool isInside(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

/// Maps memory of a GPU of another process of this host, for the GPU that is current.
std::shared_ptr<void> openMemoryOfGpu(const MemoryName& name) {
  try {
    return ctran::api::openGpuMemory(name.onGpu, name.size, ctran::api::currentGpu().value_or(0));
  } catch (const ctran::Error& error) {
    throw Error("memory of process " + std::to_string(name.owner.pid) + " on GPU " +
                    std::to_string(name.gpu) + " cannot be mapped: " + error.what(),
                ErrorCode::RemoteError);
  }
}

void checkInside(const char* what, uint64_t offset, uint64_t bytes, uint64_t size) {
  if (isInside(offset, bytes, size)) return;
  throw Error(std::string("bytes ") + std::to_string(offset) + " to " +
                  std::to_string(offset + bytes) + " of the " + what + ", which has " +
                  std::to_string(size),
              ErrorCode::InvalidUsage);
}

}  // namespace

ProcessName ProcessName::own() {
  ProcessName name;
  name.host = ownHostName();
  name.token = ownProcessToken();
  name.pid = ::getpid();
  return name;
}

std::string to_string(Transport transport) {
  switch (transport) {
    case Transport::Unknown:
      return "Unknown";
    case Transport::CudaIpc:
      return "CudaIpc";
    case Transport::Ethernet:
      return "Ethernet";
    default:
      return "IB" + std::to_string(static_cast<int>(transport) - static_cast<int>(Transport::IB0));
  }
}

void* RegisteredMemory::data() const {
  if (!impl_) throw Error("no memory was registered here", ErrorCode::InvalidUsage);
  const ProcessName& owner = impl_->name.owner;
  if (impl_->local == nullptr && !owner.isOwn() && !owner.isOfThisHost()) {
    throw Error("memory of process " + std::to_string(owner.pid) +
                    " is on another host, or another user's, and has no address here: "
                    "Connection::write and port channels reach it",
                ErrorCode::InvalidUsage);
  }
  const bool isMapped = impl_->name.exposed == 0 || transports().has(Transport::CudaIpc);
  if (impl_->local == nullptr && !isMapped) {
    throw Error("memory of process " + std::to_string(owner.pid) +
                    " was not registered for CudaIpc, and has no address here",
                ErrorCode::InvalidUsage);
  }
  if (impl_->local == nullptr) {
    throw Error("memory of process " + std::to_string(impl_->name.owner.pid) +
                    " cannot be mapped by others: take it from GpuBuffer",
                ErrorCode::InvalidUsage);
  }
  return impl_->local;
}

void* RegisteredMemory::originalDataPtr() const {
  return impl_ ? reinterpret_cast<void*>(impl_->name.address) : nullptr;
}
size_t RegisteredMemory::size() const { return impl_ ? impl_->name.size : 0; }
TransportFlags RegisteredMemory::transports() const {
  TransportFlags flags;
  for (size_t t = 0; impl_ && t < kTransports; ++t) {
    if ((impl_->name.transports >> t & 1) != 0) flags |= static_cast<Transport>(t);
  }
  return flags;
}

std::vector<char> RegisteredMemory::serialize() const {
  if (!impl_) throw Error("no memory was registered here", ErrorCode::InvalidUsage);
  return wire::packed(impl_->name);
}

RegisteredMemory RegisteredMemory::deserialize(const std::vector<char>& data) {
  auto impl = std::make_shared<Impl>();
  impl->name = wire::unpacked<MemoryName>(data, "registered memory");
  const MemoryName& name = impl->name;
  if (!name.owner.isOwn() && name.owner.isOfThisHost() && name.owner.pid == ::getpid()) {
    throw Error("what was received names this process, and is not from it",
                ErrorCode::InvalidUsage);
  }
  const bool isMapped =
      name.exposed == 0 || (name.transports >> static_cast<size_t>(Transport::CudaIpc) & 1) != 0;
  if (!isMapped && !name.owner.isOwn()) {
    // Messages go by its id.
  } else if (name.owner.isOwn()) {
    impl->local = reinterpret_cast<char*>(name.address);
  } else if (name.owner.isOfThisHost() && name.descriptor >= 0) {
    if (!isInside(name.fileOffset, name.size, name.fileBytes)) {
      throw Error("what was received is no registered memory", ErrorCode::InvalidUsage);
    }
    impl->held = mapFileOf(name);
    impl->local = static_cast<char*>(impl->held.get()) + name.fileOffset;
  } else if (name.owner.isOfThisHost() && name.gpu >= 0) {
    impl->held = openMemoryOfGpu(name);
    impl->local = static_cast<char*>(impl->held.get());
  }
  RegisteredMemory memory;
  memory.impl_ = std::move(impl);
  return memory;
}

RegisteredMemory Context::registerMemory(void* ptr, size_t size, TransportFlags transports) {
  if (ptr == nullptr && size > 0) {
    throw Error("a null pointer was registered", ErrorCode::InvalidUsage);
  }
  if (size > UINTPTR_MAX - reinterpret_cast<uintptr_t>(ptr)) {
    throw Error("memory of " + std::to_string(size) + " bytes ends beyond all addresses",
                ErrorCode::InvalidUsage);
  }
  auto impl = std::make_shared<RegisteredMemory::Impl>();
  impl->local = static_cast<char*>(ptr);
  MemoryName& name = impl->name;
  name.owner = ProcessName::own();
  name.address = reinterpret_cast<uintptr_t>(ptr);
  name.size = size;
  name.transports = transports.to_ulong();
  name.gpu = ctran::api::gpuAllocationOf(ptr).device;
  bool isForMessages = false;
  for (size_t t = 0; t < kTransports; ++t) {
    const auto transport = static_cast<Transport>(t);
    isForMessages = isForMessages || (isBetweenHosts(transport) && transports.has(transport));
  }
  if (isForMessages) {
    impl->exposed = std::make_unique<Exposed>(impl->local, size, transports, name.gpu);
    name.exposed = impl->exposed->id();
  }
  if (name.gpu >= 0) {
    ctran::api::SharedGpuMemory shared =
        translated([&] { return ctran::api::shareGpuMemory(ptr, size); });
    name.onGpu = shared.name;
    impl->held = std::move(shared.held);
  } else {
    const ctran::api::SharedFile file = ctran::api::sharedFileOf(ptr, size);
    struct stat status {};
    if (file.descriptor >= 0 && ::fstat(file.descriptor, &status) == 0) {
      name.descriptor = file.descriptor;
      name.device = status.st_dev;
      name.inode = status.st_ino;
      name.fileBytes = file.bytes;
      name.fileOffset = file.offset;
    }
  }
  RegisteredMemory memory;
  memory.impl_ = std::move(impl);
  return memory;
}

const EndpointConfig& Endpoint::config() const { return impl_->config; }
Transport Endpoint::transport() const { return impl_->config.transport; }
std::vector<char> Endpoint::serialize() const { return wire::packed(impl_->name); }

Endpoint Endpoint::deserialize(const std::vector<char>& data) {
  auto impl = std::make_shared<Impl>();
  impl->name = wire::unpacked<EndpointName>(data, "endpoint");
  const EndpointName& name = impl->name;
  const auto end = std::find(name.handle.begin(), name.handle.end(), '\0');
  const bool isWord = end != name.handle.end() && std::all_of(name.handle.begin(), end, [](char c) {
                        return c > ' ' && c <= '~';
                      });
  if (name.transport < 0 || name.transport >= static_cast<int>(kTransports) || !isWord ||
      isBetweenHosts(name.transportOf()) != (end != name.handle.begin())) {
    throw Error("what was received is no endpoint", ErrorCode::InvalidUsage);
  }
  const DeviceType type = name.gpu >= 0 ? DeviceType::GPU : DeviceType::CPU;
  impl->config = EndpointConfig(name.transportOf(), {type, name.gpu}, name.maxWriteQueueSize);
  Endpoint endpoint;
  endpoint.impl_ = std::move(impl);
  return endpoint;
}

Endpoint Context::createEndpoint(const EndpointConfig& config) {
  if (config.transport != Transport::CudaIpc && !isBetweenHosts(config.transport)) {
    throw Error("there is no transport " + to_string(config.transport) +
                    ": CudaIpc serves ranks of one host, Ethernet and IB0 to IB7 those of several",
                ErrorCode::InvalidUsage);
  }
  auto impl = std::make_shared<Endpoint::Impl>();
  impl->config = config;
  impl->name.owner = ProcessName::own();
  impl->name.transport = static_cast<int32_t>(config.transport);
  impl->name.maxWriteQueueSize = config.maxWriteQueueSize;
  if (config.device.type == DeviceType::GPU) {
    impl->name.gpu = config.device.id >= 0
                         ? config.device.id
                         : translated([] { return ctran::api::currentGpu().value_or(0); });
  }
  if (isBetweenHosts(config.transport)) {
    impl->initPoint = translated([] { return std::make_unique<ctran::api::InitPoint>(); });
    const std::string& handle = impl->initPoint->handle();
    if (handle.size() >= impl->name.handle.size()) {
      throw Error("the engine's handle has " + std::to_string(handle.size()) + " bytes",
                  ErrorCode::InternalError);
    }
    handle.copy(impl->name.handle.data(), handle.size());
  }
  Endpoint endpoint;
  endpoint.impl_ = std::move(impl);
  return endpoint;
}

std::unique_ptr<ctran::api::InitPoint> Endpoint::Impl::takeInitPoint() const {
  const std::lock_guard lock(mutex);
  if (!initPoint) {
    throw Error("an endpoint of " + to_string(config.transport) +
                    " serves one connection: make another one here for each",
                ErrorCode::InvalidUsage);
  }
  return std::move(initPoint);
}

Connection Context::connect(const Endpoint& localEndpoint, const Endpoint& remoteEndpoint) {
  const EndpointName& local = localEndpoint.impl_->name;
  const EndpointName& remote = remoteEndpoint.impl_->name;
  if (local.transport != remote.transport) {
    throw Error("one end of the connection is " + to_string(localEndpoint.transport()) +
                    ", the other " + to_string(remoteEndpoint.transport()),
                ErrorCode::InvalidUsage);
  }
  const bool isFar = !remote.owner.isOwn() && !remote.owner.isOfThisHost();
  auto impl = std::make_shared<Connection::Impl>();
  impl->context = shared_from_this();
  impl->local = local;
  impl->remote = remote;
  if (isBetweenHosts(localEndpoint.transport())) {
    impl->link = std::make_unique<Link>(localEndpoint.impl_->takeInitPoint(), local, remote);
  } else {
    if (isFar) {
      throw Error(
          "the other end of a CudaIpc connection is on another host, or another user's: Ethernet "
          "and IB0 to IB7 reach it",
          ErrorCode::InvalidUsage);
    }
    if (!remote.owner.isOwn()) impl->process = openProcess(remote.owner.pid);
    if (local.gpu >= 0) translated([&] { impl->stream(); });
  }
  Connection connection;
  connection.impl_ = std::move(impl);
  return connection;
}

Transport Connection::transport() const { return static_cast<Transport>(impl_->local.transport); }
Transport Connection::remoteTransport() const {
  return static_cast<Transport>(impl_->remote.transport);
}
std::shared_ptr<Context> Connection::context() const { return impl_->context; }
int Connection::getMaxWriteQueueSize() const { return impl_->local.maxWriteQueueSize; }
Device Connection::device() const {
  return {impl_->local.gpu >= 0 ? DeviceType::GPU : DeviceType::CPU, impl_->local.gpu};
}

ctran::api::OwnGpuStream& Connection::Impl::stream() const {
  std::call_once(once_, [this] {
    const int gpu = local.gpu >= 0 ? local.gpu : ctran::api::currentGpu().value_or(0);
    constexpr size_t kWords = 512;
    stream_ = std::make_unique<ctran::api::OwnGpuStream>(gpu, kWords);
  });
  return *stream_;
}

void Connection::Impl::finishCopies() const {
  if (stream_) translated([&] { stream_->synchronize(); });
}

void Connection::write(const RegisteredMemory& dst, uint64_t dstOffset, const RegisteredMemory& src,
                       uint64_t srcOffset, uint64_t size) {
  checkInside("destination", dstOffset, size, dst.size());
  checkInside("source", srcOffset, size, src.size());
  const char* from = static_cast<const char*>(src.data()) + srcOffset;
  if (impl_->link) {
    return impl_->link->write(dst.impl_->name, dstOffset, from, src.impl_->name.gpu, size);
  }
  if (src.impl_->name.gpu >= 0 || dst.impl_->name.gpu >= 0) {
    char* const to = static_cast<char*>(dst.data()) + dstOffset;
    return translated([&] { impl_->stream().move(to, from, size); });
  }
  if (dst.impl_->local != nullptr) {
    std::memcpy(dst.impl_->local + dstOffset, from, size);
    return;
  }
  // Memory that nobody else can map: the system writes it.
  uint64_t to = dst.impl_->name.address + dstOffset;
  const int pid = dst.impl_->name.owner.pid;
  while (size > 0) {
    const iovec local{const_cast<char*>(from), size};
    const iovec remote{reinterpret_cast<void*>(to), size};
    const ssize_t written = ::process_vm_writev(pid, &local, 1, &remote, 1, 0);
    if (written < 0 && errno == EPERM) {
      throw Error(
          "this system does not let processes write each other's memory: take memory that "
          "others write from GpuBuffer",
          ErrorCode::SystemError);
    }
    if (written <= 0) throw SysError("writing memory of process " + std::to_string(pid), errno);
    from += written;
    to += static_cast<uint64_t>(written);
    size -= static_cast<uint64_t>(written);
  }
}

void Connection::updateAndSync(const RegisteredMemory& dst, uint64_t dstOffset, uint64_t* src,
                               uint64_t newValue) {
  checkInside("destination", dstOffset, sizeof newValue, dst.size());
  const auto isWord = [](uint64_t address) { return address % sizeof newValue == 0; };
  if (src == nullptr || !isWord(reinterpret_cast<uintptr_t>(src)) ||
      !isWord(dst.impl_->name.address + dstOffset)) {
    throw Error("updateAndSync needs a word at each end, at an address that 8 divides",
                ErrorCode::InvalidUsage);
  }
  *src = newValue;
  if (impl_->link) return impl_->link->update(dst.impl_->name, dstOffset, newValue);
  auto* const word = reinterpret_cast<uint64_t*>(static_cast<char*>(dst.data()) + dstOffset);
  if (dst.impl_->name.gpu >= 0) return translated([&] { impl_->stream().set(word, newValue); });
  impl_->finishCopies();
  storeReleaseSystem(word, newValue);
}

// A write by this thread has ended when it returns, and one over a link has left the source.
void Connection::flush(int64_t) {
  if (impl_->link) return impl_->link->flush();
  impl_->finishCopies();
}

}  // namespace mscclpp
