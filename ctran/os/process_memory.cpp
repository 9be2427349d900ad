#include "ctran/os/process_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace ctran {

int readProcessMemory(int process, const std::byte* from, std::byte* to, size_t bytes) {
  while (bytes > 0) {
    const iovec local{to, bytes}, remote{const_cast<std::byte*>(from), bytes};
    const ssize_t read = process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (read < 0) return errno;
    if (read == 0) return EFAULT;
    from += read;
    to += read;
    bytes -= static_cast<size_t>(read);
  }
  return 0;
}

bool canBeRead(std::span<const std::byte* const> addresses) {
  std::vector<iovec> remote;
  for (const std::byte* address : addresses) remote.push_back({const_cast<std::byte*>(address), 1});
  std::vector<std::byte> found(remote.size());
  const iovec local{found.data(), found.size()};
  return process_vm_readv(::getpid(), &local, 1, remote.data(), remote.size(), 0) ==
         static_cast<ssize_t>(remote.size());
}

}  // namespace ctran
