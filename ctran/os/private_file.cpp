#include "ctran/os/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "ctran/base/error.h"
#include "ctran/os/unique_fd.h"

namespace ctran {

void writePrivateFile(const std::string& path, std::string_view bytes) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                           S_IRUSR | S_IWUSR));
  if (!fd) throw systemError("cannot make " + path, errno);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw systemError("cannot write " + path, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

std::optional<std::string> readPrivateFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) throw systemError("cannot read " + path, errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw systemError("cannot read " + path, errno);
  const bool isOwn = status.st_uid == ::geteuid() || status.st_uid == 0;
  if (!isOwn || !S_ISREG(status.st_mode) || (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error(ErrorKind::System, path + " is not of this user alone");
  }
  std::string bytes;
  char part[4096];
  while (true) {
    const ssize_t n = ::read(fd.get(), part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw systemError("cannot read " + path, errno);
    if (n == 0) return bytes;
    bytes.append(part, static_cast<size_t>(n));
  }
}

}  // namespace ctran
