#include "ctran/os/process_memory.h"

#include <sys/uio.h>

#include <cerrno>

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

}  // namespace ctran
