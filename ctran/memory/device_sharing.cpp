#include "ctran/memory/device_sharing.h"

#include <chrono>
#include <string>
#include <thread>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/gpu/discard.h"

namespace ctran {
namespace {

using gpu::DevicePtr;

constexpr unsigned kEnablePeerAccess = 1;
constexpr std::chrono::seconds kPatience{5};

const gpu::Driver& sharingDriver() {
  const gpu::Driver& driver = gpu::Driver::get();
  if (driver.ipcGetMemHandle && driver.ipcOpenMemHandle && driver.ipcCloseMemHandle &&
      driver.memGetAddressRange) {
    return driver;
  }
  throw Error(ErrorKind::Unsupported, "This driver does not share device memory between processes");
}

/// Returns where the allocation has been mapped. The driver refuses to map what its owner has
/// allocated anew at the same address, until the mapping of what was there before is closed; that
/// one may be waiting for its moment (discard()).
DevicePtr mapAllocation(const gpu::IpcHandle& handle) {
  const gpu::Driver& driver = sharingDriver();
  DevicePtr base = 0;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  gpu::Result result = driver.ipcOpenMemHandle(&base, handle, kEnablePeerAccess);
  while (result == gpu::kAlreadyMapped && std::chrono::steady_clock::now() < until) {
    gpu::freeDiscarded();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    result = driver.ipcOpenMemHandle(&base, handle, kEnablePeerAccess);
  }
  if (result == gpu::kSuccess) return base;
  throw Error(ErrorKind::Unsupported,
              "The memory of another rank cannot be mapped: " + gpu::describe(result), {}, {},
              "ranks map each other's memory where their GPUs reach each other on one host");
}

}  // namespace

SharedRange shareDeviceMemory(DevicePtr address, size_t bytes) {
  SharedRange range;
  range.bytes = bytes;
  if (bytes == 0) return range;
  if (const auto segment = DeviceSegment::find(gpu::pointerTo(address), bytes)) {
    range.isSegment = 1;
    range.segment = segment->ticket();
    range.offset = address - segment->address();
    return range;
  }
  const gpu::Driver& driver = sharingDriver();
  DevicePtr base = 0;
  size_t size = 0;
  gpu::check(driver.memGetAddressRange(&base, &size, address), "cuMemGetAddressRange");
  if (const auto result = driver.ipcGetMemHandle(&range.handle, base)) {
    throw Error(ErrorKind::Unsupported,
                "This memory cannot be mapped by other processes: " + gpu::describe(result), {}, {},
                "use memory of window_allocate(), of RawGpuBuffer, or of torch; with expandable "
                "segments, a tensor that lies in one of the allocations that they are made of");
  }
  range.offset = address - base;
  return range;
}

std::shared_ptr<void> mapDeviceMemory(const SharedRange& range, int device) {
  if (range.bytes == 0) return nullptr;
  if (range.isSegment) {
    const auto mapping = DeviceSegment::open(range.segment, device);
    if (!isInside(range.offset, range.bytes, mapping->size())) {
      throw Error(ErrorKind::System, "a name of GPU memory reaches beyond its allocation");
    }
    return {mapping, gpu::pointerTo(mapping->address() + range.offset)};
  }
  const gpu::DeviceGuard active(device);
  const DevicePtr base = mapAllocation(range.handle);
  std::shared_ptr<void> mapped(gpu::pointerTo(base), [base, device](void*) {
    gpu::discard(device, [base] { gpu::Driver::get().ipcCloseMemHandle(base); });
  });
  // The driver knows how much has been mapped, whatever the name says; without that, no address
  // behind the first one is used.
  DevicePtr begin = 0;
  size_t size = 0;
  if (sharingDriver().memGetAddressRange(&begin, &size, base) != gpu::kSuccess || begin > base ||
      !isInside(Checked(base - begin) + range.offset, range.bytes, size)) {
    throw Error(ErrorKind::System, "a name of GPU memory reaches beyond its allocation");
  }
  return {mapped, gpu::pointerTo(base + range.offset)};
}

}  // namespace ctran
