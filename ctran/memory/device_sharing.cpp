#include "ctran/memory/device_sharing.h"

#include <string>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/gpu/discard.h"

namespace ctran {
namespace {

using gpu::DevicePtr;

constexpr unsigned kEnablePeerAccess = 1;

const gpu::Driver& sharingDriver() {
  const gpu::Driver& driver = gpu::Driver::get();
  if (driver.ipcGetMemHandle && driver.ipcOpenMemHandle && driver.ipcCloseMemHandle &&
      driver.memGetAddressRange) {
    return driver;
  }
  throw Error(ErrorKind::Unsupported, "This driver does not share device memory between processes");
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
  const gpu::Driver& driver = sharingDriver();
  const gpu::DeviceGuard active(device);
  DevicePtr base = 0;
  if (const auto result = driver.ipcOpenMemHandle(&base, range.handle, kEnablePeerAccess)) {
    throw Error(ErrorKind::Unsupported,
                "The memory of another rank cannot be mapped: " + gpu::describe(result), {}, {},
                "ranks map each other's memory where their GPUs reach each other on one host");
  }
  std::shared_ptr<void> mapped(gpu::pointerTo(base), [base, device](void*) {
    gpu::discard(device, [base] { gpu::Driver::get().ipcCloseMemHandle(base); });
  });
  // The driver knows how much has been mapped, whatever the name says; without that, no address
  // behind the first one is used.
  DevicePtr begin = 0;
  size_t size = 0;
  if (driver.memGetAddressRange(&begin, &size, base) != gpu::kSuccess || begin > base ||
      !isInside(Checked(base - begin) + range.offset, range.bytes, size)) {
    throw Error(ErrorKind::System, "a name of GPU memory reaches beyond its allocation");
  }
  return {mapped, gpu::pointerTo(base + range.offset)};
}

}  // namespace ctran
