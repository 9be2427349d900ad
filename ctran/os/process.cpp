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
#include <memory>
#include <utility>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/base/log.h"

namespace ctran {
namespace {

const ConfigString kHost{"CTRAN_HOST", "",
                         "Makes processes with different values count as on different hosts, "
                         "though they are on one: for tests."};

std::atomic<uint64_t> gToken{0};  // 0: not drawn yet
[[maybe_unused]] const int gTokenAtFork = pthread_atfork(nullptr, nullptr, [] { gToken = 0; });

}  // namespace

UniqueFd openOwnPidFd() {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!fd) throw systemError("pidfd_open (Linux 5.3 or newer is needed)", errno);
  return fd;
}

std::string bootIdentity() {
  std::string bootId;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), bootId);
  return bootId;
}

std::string hostIdentity(const std::string& override) {
  struct stat net {};
  if (::stat("/proc/self/ns/net", &net) != 0) {
    throw Error(ErrorKind::System, "there is no /proc/self/ns/net", {}, {},
                "mount /proc: mount -t proc proc /proc");
  }
  const std::string host = override.empty() ? kHost.get() : override;
  if (host.size() > 60) {
    throw Error(ErrorKind::InvalidArgument,
                "the name of a host (CTRAN_HOST) is longer than 60 characters");
  }
  return bootIdentity() + "/" + std::to_string(net.st_ino) + "/" + host;
}

uint64_t processToken() {
  uint64_t token = gToken.load();
  if (token != 0) return token;
  uint64_t fresh;
  fillRandom(reinterpret_cast<std::byte*>(&fresh), sizeof fresh);
  fresh |= 1;
  return gToken.compare_exchange_strong(token, fresh) ? fresh : token;
}

namespace {

struct ThreadStart {
  const char* name;
  std::function<void()> body;
};

thread_local bool tIsOwn = false;

void* runThread(void* argument) {
  tIsOwn = true;
  const std::unique_ptr<ThreadStart> start(static_cast<ThreadStart*>(argument));
  ::pthread_setname_np(::pthread_self(), start->name);
  start->body();
  return nullptr;
}

}  // namespace

bool isOwnThread() { return tIsOwn; }

void startThread(const char* name, std::function<void()> body) {
  auto start = std::make_unique<ThreadStart>(ThreadStart{name, std::move(body)});
  sigset_t all, before;
  ::sigfillset(&all);
  // What a thread does wrong itself is reported as it would be anywhere.
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
    ::sigdelset(&all, own);
  }
  // Detached from its first moment: it may end before pthread_create returns.
  pthread_attr_t detached;
  ::pthread_attr_init(&detached);
  ::pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits the mask
  pthread_t thread;
  const int error = ::pthread_create(&thread, &detached, runThread, start.get());
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&detached);
  if (error != 0) throw systemError("starting a thread", error);
  (void)start.release();  // the thread's
}

std::string processName() { return hostName() + " (pid " + std::to_string(::getpid()) + ")"; }

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
