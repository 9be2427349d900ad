#include "ctran/gpu/memory.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ctran/base/error.h"
#include "ctran/gpu/discard.h"

namespace ctran::gpu {
namespace {

constexpr Result kAlreadyRegistered = 712;

MemoryProperties propertiesFor(int device) {
  MemoryProperties properties;
  properties.location.id = device;
  return properties;
}

}  // namespace

DeviceMemory DeviceMemory::allocate(int device, size_t bytes) {
  const Driver& driver = Driver::get();
  DeviceGuard guard(device);
  const MemoryProperties properties = propertiesFor(device);
  size_t page = 0;
  check(driver.memGetAllocationGranularity(&page, &properties, /*minimum*/ 0),
        "cuMemGetAllocationGranularity");
  DeviceMemory memory;
  const size_t size = (bytes + page - 1) / page * page;
  check(driver.memCreate(&memory.handle_, size, &properties, 0), "cuMemCreate");
  memory.size_ = size;
  memory.map(device);
  return memory;
}

DeviceMemory DeviceMemory::import(int fd, size_t bytes, int device) {
  const Driver& driver = Driver::get();
  DeviceGuard guard(device);
  DeviceMemory memory;
  check(driver.memImportFromShareableHandle(&memory.handle_,
                                            reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                            kMemoryHandlePosixFd),
        "cuMemImportFromShareableHandle");
  memory.size_ = bytes;
  memory.map(device);
  return memory;
}

DeviceMemory DeviceMemory::retain(DevicePtr address) {
  const Driver& driver = Driver::get();
  MemoryHandle handle = 0;
  if (!driver.memGetAddressRange ||
      driver.memRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)) != kSuccess) {
    return {};
  }
  DeviceMemory memory;
  memory.handle_ = handle;
  memory.isOthers_ = true;
  check(driver.memGetAddressRange(&memory.address_, &memory.size_, address),
        "cuMemGetAddressRange");
  return memory;
}

void DeviceMemory::map(int device) {
  const Driver& driver = Driver::get();
  DevicePtr address = 0;
  check(driver.memAddressReserve(&address, size_, 0, 0, 0), "cuMemAddressReserve");
  if (Result result = driver.memMap(address, size_, 0, handle_, 0); result != kSuccess) {
    driver.memAddressFree(address, size_);
    check(result, "cuMemMap");
  }
  address_ = address;
  allow(device);
}

void DeviceMemory::allow(int device) {
  MemoryAccess access;
  access.location.id = device;
  check(Driver::get().memSetAccess(address_, size_, &access, 1), "cuMemSetAccess");
}

int DeviceMemory::exportHandle() const {
  int fd = -1;
  check(Driver::get().memExportToShareableHandle(&fd, handle_, kMemoryHandlePosixFd, 0),
        "cuMemExportToShareableHandle");
  return fd;
}

void DeviceMemory::swap(DeviceMemory& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(address_, other.address_);
  std::swap(size_, other.size_);
  std::swap(isOthers_, other.isOthers_);
}

DeviceMemory::~DeviceMemory() {
  if (handle_ == 0) return;
  const Driver& driver = Driver::get();
  if (address_ && !isOthers_) {
    driver.memUnmap(address_, size_);
    driver.memAddressFree(address_, size_);
  }
  driver.memRelease(handle_);
}

MappedHostMemory::MappedHostMemory(int device, size_t bytes) : ownDevice_(device) {
  const Driver& driver = Driver::get();
  const DeviceGuard guard(device);
  check(driver.memHostAlloc(&host_, bytes, kHostPortable | kHostDeviceMap), "cuMemHostAlloc");
  std::memset(host_, 0, bytes);
  if (Result result = driver.memHostGetDevicePointer(&device_, host_, 0); result != kSuccess) {
    driver.memFreeHost(host_);
    check(result, "cuMemHostGetDevicePointer");
  }
}

MappedHostMemory::~MappedHostMemory() {
  discard(ownDevice_, [host = host_] { Driver::get().memFreeHost(host); });
}

SharedHostMemory SharedHostMemory::allocate(int device, const char* label, size_t bytes) {
  UniqueFd file = createSharedMemory(label, bytes);
  SharedHostMemory memory = map(device, file, bytes);
  memory.file_ = std::move(file);
  return memory;
}

SharedHostMemory SharedHostMemory::map(int device, const UniqueFd& fd, size_t bytes) {
  const Driver& driver = Driver::get();
  const DeviceGuard guard(device);
  SharedHostMemory memory;
  memory.device_ = device;
  memory.mapping_ = SharedMapping::map(fd, bytes);
  const Result result =
      driver.memHostRegister(memory.host(), memory.size(), kHostPortable | kHostDeviceMap);
  // Ranks that are threads of one process share one mapping.
  if (result != kAlreadyRegistered) check(result, "cuMemHostRegister");
  memory.registered_ = result == kSuccess;
  check(driver.memHostGetDevicePointer(&memory.address_, memory.host(), 0),
        "cuMemHostGetDevicePointer");
  return memory;
}

UniqueFd SharedHostMemory::exportHandle() const {
  const int fd = fcntl(file_.get(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) {
    throw Error(ErrorKind::System,
                std::string("duplicating a descriptor: ") + std::strerror(errno));
  }
  return UniqueFd(fd);
}

void SharedHostMemory::swap(SharedHostMemory& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(mapping_, other.mapping_);
  std::swap(address_, other.address_);
  std::swap(device_, other.device_);
  std::swap(registered_, other.registered_);
}

SharedHostMemory::~SharedHostMemory() {
  if (!registered_) return;
  discard(device_, [mapping = mapping_] { Driver::get().memHostUnregister(mapping->data()); });
}

}  // namespace ctran::gpu
