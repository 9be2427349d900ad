#pragma once

#include <memory>

#include "mscclpp/core.hpp"

namespace mscclpp {

/// A limit of MSCCLPP_TIMEOUT, where such kernels and the host see it.
std::shared_ptr<WaitLimit> newLimit(DeviceType kernels);

/// Whether something has ended a wait.
bool storedFailed(const WaitLimit& limit);

/// Whether there is something to read: of a pidfd, the process has ended.
bool isReadable(int descriptor);

}  // namespace mscclpp
