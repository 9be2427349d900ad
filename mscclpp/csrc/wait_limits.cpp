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

bool storedFailed(const WaitLimit& limit) { return loadRelaxedSystem(&limit.failed) != 0; }

bool isReadable(int descriptor) {
  if (descriptor < 0) return false;
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace mscclpp
