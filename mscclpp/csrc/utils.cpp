#include "mscclpp/utils.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ctran/gpu.h"
#include "ctran/window.h"
#include "engine_errors.h"
#include "lines.h"
#include "mscclpp/gpu_utils.hpp"

namespace mscclpp {

SysError::SysError(const std::string& message, int errnum)
    : BaseError(message + ": " + std::strerror(errnum), errnum) {}

std::string version() { return MSCCLPP_VERSION; }

std::string getHostName(int maxlen, char delim) {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) throw SysError("gethostname", errno);
  const std::string whole(name);
  return whole.substr(0, whole.find(delim)).substr(0, static_cast<size_t>(maxlen));
}

namespace detail {

std::shared_ptr<void> allocateMappable(size_t bytes, DeviceType kernels) {
  return translated([&]() -> std::shared_ptr<void> {
    const size_t some = std::max<size_t>(bytes, 1);
    if (kernels != DeviceType::GPU) return ctran::api::allocateShared(some);
    return ctran::api::allocateOnGpu(ctran::api::currentGpu().value_or(0), some);
  });
}

std::shared_ptr<void> allocateLocal(size_t bytes, DeviceType kernels) {
  if (kernels == DeviceType::GPU) {
    return allocateLines(LineKind::OnGpu, std::max<size_t>(bytes, 1),
                         translated([] { return ctran::api::currentGpu().value_or(0); }));
  }
  void* const memory = std::calloc(1, std::max<size_t>(bytes, 1));
  if (memory == nullptr) throw Error("no memory", ErrorCode::SystemError);
  return {memory, std::free};
}

void copy(void* to, const void* from, size_t bytes, DeviceType kernels) {
  if (kernels != DeviceType::GPU) {
    std::memmove(to, from, bytes);
    return;
  }
  translated([&] {
    ctran::api::OwnGpuStream stream(ctran::api::currentGpu().value_or(0));
    stream.move(to, from, bytes);
    stream.synchronize();
  });
}

}  // namespace detail
}  // namespace mscclpp
