#include "wait_limits.h"

#include <poll.h>

#include <new>

#include "lines.h"
#include "mscclpp/atomic_device.hpp"
#include "mscclpp/env.hpp"

namespace mscclpp {

std::shared_ptr<WaitLimit> newLimit(DeviceType kernels) {
  std::shared_ptr<WaitLimit> limit = kernels == DeviceType::GPU
                                         ? allocateLine<WaitLimit>(LineKind::ForGpus)
                                         : std::make_shared<WaitLimit>();
  *limit = WaitLimit();
  limit->timeoutNanos = int64_t{env()->timeoutSeconds} * 1'000'000'000;
  return limit;
}

WaitEnd storedEnd(const WaitLimit& limit) {
  return static_cast<WaitEnd>(__atomic_load_n(&limit.failed, __ATOMIC_ACQUIRE));
}

void storeFailed(WaitLimit& limit, WaitEnd why) {
  __atomic_store_n(&limit.failed, static_cast<uint32_t>(why), __ATOMIC_RELEASE);
}

std::string named(const WaitLimit& limit, WaitEnd why) {
  const std::string rank = limit.peer == kProxy ? "the proxy, which has to be started"
                           : limit.peer < 0     ? "others"
                                                : "rank " + std::to_string(limit.peer);
  switch (why) {
    case WaitEnd::Lost:
      return rank + ", whose process has ended, or is not reached any more";
    case WaitEnd::Closed:
      return rank + ", which has closed the connection";
    case WaitEnd::Aborted:
      return rank + ", when a rank had called abort, or had gone";
    default:
      return rank;
  }
}

bool isReadable(int descriptor) {
  if (descriptor < 0) return false;
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace mscclpp
