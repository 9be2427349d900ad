#include "ctran/os/process.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "ctran/base/error.h"

namespace ctran {
namespace {

std::atomic<uint64_t> gToken{0};  // 0: not drawn yet
[[maybe_unused]] const int gAtFork = pthread_atfork(nullptr, nullptr, [] { gToken = 0; });

}  // namespace

UniqueFd openOwnPidFd() {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!fd) throw systemError("pidfd_open (Linux 5.3 or newer is needed)", errno);
  return fd;
}

std::string hostIdentity() {
  std::string bootId;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), bootId);
  struct stat net {};
  if (::stat("/proc/self/ns/net", &net) != 0) throw systemError("/proc/self/ns/net", errno);
  return bootId + "/" + std::to_string(net.st_ino);
}

uint64_t processToken() {
  uint64_t token = gToken.load();
  if (token != 0) return token;
  uint64_t fresh;
  fillRandom(reinterpret_cast<std::byte*>(&fresh), sizeof fresh);
  fresh |= 1;
  return gToken.compare_exchange_strong(token, fresh) ? fresh : token;
}

void startThread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  ::sigfillset(&all);
  // What a thread does wrong itself is reported as it would be anywhere.
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    ::sigdelset(&all, own);
  }
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits the mask
  int error = 0;
  try {
    std::thread([name, body = std::move(body)] {
      ::pthread_setname_np(::pthread_self(), name);
      body();
    }).detach();
  } catch (const std::system_error& failure) {
    error = failure.code().value();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) throw systemError("starting a thread", error);
}

std::string processName() {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + " (pid " + std::to_string(::getpid()) + ")";
}

void fillRandom(std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::getrandom(data, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw systemError("getrandom", errno);
    data += got;
    bytes -= static_cast<size_t>(got);
  }
}

int availableCores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace ctran
