#include "host.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>

#include "mscclpp/env.hpp"

namespace mscclpp {
namespace {

/// What the kernel calls a namespace of this process.
std::string namespaceOf(const char* kind) {
  struct stat status {};
  const std::string path = std::string("/proc/self/ns/") + kind;
  return ::stat(path.c_str(), &status) == 0 ? std::to_string(status.st_ino) : "?";
}

HostName nameOfHost() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const char* const simulated = std::getenv("CTRAN_HOST");  // the engine's: makes one host several
  const std::string text = boot + "/" + namespaceOf("pid") + "/" + std::to_string(::geteuid()) +
                           "/" + (simulated == nullptr ? "" : simulated) + "/" + env()->hostid;
  HostName name{};
  text.copy(name.data(), name.size() - 1);
  return name;
}

std::atomic<uint64_t> gToken{0};
[[maybe_unused]] const int gAtFork = ::pthread_atfork(nullptr, nullptr, [] { gToken.store(0); });

}  // namespace

HostName ownHostName() {
  static std::mutex mutex;
  static HostName name;
  static uint64_t process = 0;  // a child made by fork may be elsewhere
  const std::lock_guard lock(mutex);
  if (process != ownProcessToken()) name = nameOfHost();
  process = ownProcessToken();
  return name;
}

uint64_t ownProcessToken() {
  uint64_t token = gToken.load();
  if (token != 0) return token;
  uint64_t fresh = 0;
  while (fresh == 0) fillRandom(&fresh, sizeof fresh);
  return gToken.compare_exchange_strong(token, fresh) ? fresh : token;
}

void fillRandom(void* data, size_t bytes) {
  auto* const to = static_cast<char*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::getrandom(to + done, bytes - done, 0);
    if (n < 0 && errno != EINTR) throw SysError("getrandom", errno);
    if (n > 0) done += static_cast<size_t>(n);
  }
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::shared_ptr<Descriptor> openProcess(int pid) {
  const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0 && errno == ESRCH) {
    throw Error("process " + std::to_string(pid) + " of another rank has ended",
                ErrorCode::RemoteError);
  }
  // Without pidfds (Linux before 5.3) its death is noticed by the deadline.
  return std::make_shared<Descriptor>(fd);
}

}  // namespace mscclpp
