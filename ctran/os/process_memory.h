#pragma once

#include <cstddef>
#include <span>

namespace ctran {

/// Copies out of the memory of a process of this host, without its help. 0, or the error: EPERM
/// where the system does not allow it, ESRCH where there is no such process, EFAULT where there is
/// no such memory.
int readProcessMemory(int process, const std::byte* from, std::byte* to, size_t bytes);

/// Whether others may do that with this process's memory at these addresses. Not, for example,
/// where a driver has mapped it, as memory that is pinned for a GPU.
bool canBeRead(std::span<const std::byte* const> addresses);

}  // namespace ctran
