#include "ctran/base/error.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>

namespace ctran {

namespace {

struct Remedy {
  int errnum;
  const char* hint;
};
constexpr Remedy kRemedies[] = {
    {EMFILE, "raise the limit of descriptors (ulimit -n), or see what the process keeps open"},
    {ENFILE, "the host has no descriptor left: see what keeps them open, or raise fs.file-max"},
    {EFBIG, "raise the limit of file sizes (ulimit -f)"},
    {ENOMEM, "free memory, or raise the limit of it (ulimit -v, or that of the container)"},
    {EAGAIN, "raise the limit of threads (ulimit -u, or the container's pids limit), or of memory"},
    {EPERM, "the system forbids it: see the container's seccomp profile, or the firewall"},
    {ENOSYS, "the kernel is too old for it, or the container's seccomp profile forbids it"},
};

}  // namespace

Error systemError(const std::string& what, int errnum, std::string op) {
  const auto* const remedy = std::find_if(std::begin(kRemedies), std::end(kRemedies),
                                          [&](const Remedy& one) { return one.errnum == errnum; });
  // Not strerror(): its buffer is shared between threads.
  return Error(ErrorKind::System, what + ": " + std::generic_category().message(errnum), {},
               std::move(op), remedy == std::end(kRemedies) ? "" : remedy->hint);
}

}  // namespace ctran
