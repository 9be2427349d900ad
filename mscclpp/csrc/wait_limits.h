#pragma once

#include <memory>
#include <string>

#include "mscclpp/core.hpp"

namespace mscclpp {

inline constexpr int32_t kProxy = -2;  ///< WaitLimit::peer, of waits for this process's proxy

/// A limit of MSCCLPP_TIMEOUT, where such kernels and the host see it.
std::shared_ptr<WaitLimit> newLimit(DeviceType kernels);

/// What has ended a wait, if something has.
WaitEnd storedEnd(const WaitLimit& limit);
/// Ends waits. What was written before is visible to who sees it.
void storeFailed(WaitLimit& limit, WaitEnd why);

/// Who is waited for, and what has become of it: "rank 3, whose process has ended".
std::string named(const WaitLimit& limit, WaitEnd why);

/// Whether there is something to read: of a pidfd, the process has ended.
bool isReadable(int descriptor);

}  // namespace mscclpp
