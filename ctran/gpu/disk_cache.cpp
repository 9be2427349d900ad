#include "ctran/gpu/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

namespace ctran::gpu {
namespace {

constexpr std::string_view kMagic = "ctran-cache 1\n";
constexpr size_t kDigestChars = 32;

/// Longer than any compile; afterwards we stop waiting for the process that holds the lock and do
/// the work ourselves, which is harmless because files are published by rename.
constexpr auto kLockPatience = std::chrono::seconds(60);

bool makeDirectories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    std::string part = path.substr(0, slash);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return false;
    if (slash == std::string::npos) return true;
  }
}

/// An exclusive advisory lock on a file; the kernel drops it when its holder dies.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ < 0) return;
    const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
    while (flock(fd_, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

/// magic, digest of the payload, payload.
std::optional<std::string> readVerified(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const size_t header = kMagic.size() + kDigestChars;
  if (bytes.size() < header || bytes.compare(0, kMagic.size(), kMagic) != 0) return std::nullopt;
  std::string payload = bytes.substr(header);
  if (bytes.compare(kMagic.size(), kDigestChars, Digest().add(payload).hex()) != 0) {
    return std::nullopt;
  }
  return payload;
}

/// Failing to write is no error: the next process makes the file again.
void publish(const std::string& path, const std::string& payload) {
  std::string temporary = path + ".XXXXXX";
  int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return;
  std::string bytes(kMagic);
  bytes += Digest().add(payload).hex();
  bytes += payload;
  size_t written = 0;
  while (written < bytes.size()) {
    ssize_t n = write(fd, bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += n;
  }
  close(fd);
  if (written != bytes.size() || rename(temporary.c_str(), path.c_str()) != 0) {
    unlink(temporary.c_str());
  }
}

}  // namespace

Digest& Digest::add(std::string_view bytes) {
  constexpr Uint128 kPrime = (Uint128{1} << 88) | 0x13b;
  for (unsigned char byte : bytes) state_ = (state_ ^ byte) * kPrime;
  return *this;
}

std::string Digest::hex() const {
  std::string text(kDigestChars, '0');
  for (size_t i = 0; i < kDigestChars; ++i) {
    text[i] = "0123456789abcdef"[static_cast<unsigned>(state_ >> (124 - 4 * i)) & 15];
  }
  return text;
}

std::string DiskCache::defaultDirectory() {
  if (const char* xdg = getenv("XDG_CACHE_HOME"); xdg && *xdg == '/') {
    return std::string(xdg) + "/torchcomms";
  }
  if (const char* home = getenv("HOME"); home && *home == '/') {
    return std::string(home) + "/.cache/torchcomms";
  }
  return "/tmp/torchcomms-cache-" + std::to_string(getuid());
}

std::string DiskCache::get(const std::string& key,
                           const std::function<std::string()>& produce) const {
  struct stat status {};
  if (!makeDirectories(directory_) || stat(directory_.c_str(), &status) != 0 ||
      status.st_uid != geteuid()) {
    return produce();  // no directory, or somebody else's: neither trusted nor written
  }
  const std::string path = directory_ + "/" + key;
  if (auto payload = readVerified(path)) return *payload;
  FileLock lock(path + ".lock");
  if (auto payload = readVerified(path)) return *payload;
  std::string payload = produce();
  publish(path, payload);
  return payload;
}

}  // namespace ctran::gpu
