#include "ctran/rdma/gpu_region.h"

#include <unistd.h>

#include "ctran/base/error.h"
#include "ctran/gpu/driver.h"
#include "ctran/os/unique_fd.h"

namespace ctran {

using namespace ibverbx;

namespace {

/// A dma-buf of the whole pages around [address, address + bytes); `why` if there is none.
UniqueFd exportPages(int device, uint64_t first, size_t bytes, std::string& why) {
  try {
    const gpu::Driver& driver = gpu::Driver::get();
    const gpu::DeviceGuard guard(device);
    if (!driver.memGetHandleForAddressRange) {
      why = "the CUDA driver is older than 11.7";
      return {};
    }
    int fd = -1;
    const gpu::Result result =
        driver.memGetHandleForAddressRange(&fd, first, bytes, gpu::kAddressRangeDmaBufFd, 0);
    if (result == gpu::kSuccess) return UniqueFd(fd);
    why = gpu::describe(result);
  } catch (const Error& error) {
    why = error.what();
  }
  return {};
}

}  // namespace

Expected<IbvMr> registerGpuMemory(const IbvPd& pd, int device, void* address, size_t bytes,
                                  unsigned access) {
  const uint64_t begin = reinterpret_cast<uint64_t>(address);
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t first = begin / page * page;
  const uint64_t end = (begin + bytes + page - 1) / page * page;
  std::string why;
  if (const UniqueFd fd = exportPages(device, first, end - first, why)) {
    Expected<IbvMr> region = pd.regDmabufMr(begin - first, bytes, begin, fd.get(), access);
    if (region) return region;
    why = region.error().errStr;
  }
  Expected<IbvMr> region = pd.regMr(address, bytes, access);
  if (region) return region;
  return ibverbx::Error{region.error().errNum,
                        "as a dma-buf: " + why + "; through the peer-memory module: " +
                            region.error().errStr + ". Load nvidia_peermem, or use host memory"};
}

}  // namespace ctran
