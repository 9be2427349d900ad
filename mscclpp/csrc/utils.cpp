#include "mscclpp/utils.hpp"

#include <unistd.h>

#include <cstring>

#include "mscclpp/gpu_utils.hpp"

#include "ctran/window.h"

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

std::shared_ptr<void> allocateMappable(size_t bytes) { return ctran::api::allocateShared(bytes); }

std::shared_ptr<void> allocateLocal(size_t bytes) {
  void* const memory = std::calloc(1, std::max<size_t>(bytes, 1));
  if (memory == nullptr) throw Error("no memory", ErrorCode::SystemError);
  return {memory, std::free};
}

}  // namespace detail
}  // namespace mscclpp
