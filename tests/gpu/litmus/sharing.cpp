#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "ctran/gpu/device_source.h"
#include "ctran/gpu/nvrtc.h"
#include "tests/gpu/litmus/gpus.h"
#include "tests/gpu/litmus/groups.h"
#include "tests/gpu/litmus/harness.h"

namespace litmus {
namespace {

constexpr uint64_t kWords = 1 << 20;

uint32_t wrongWords(Gpu& gpu, DevicePtr words, uint32_t seed, DevicePtr counter) {
  const uint32_t zero = 0;
  put(gpu, counter, &zero, sizeof zero);
  check(gpu.launch("ctranCheckPattern", 64, 256, 0, words, kWords, seed, counter), "check pattern");
  return fetch<uint32_t>(gpu, counter, 1)[0];
}

/// Between every two GPUs of this process: what the driver claims, and what is true.
void probes(Gpus& gpus) {
  const Driver& driver = Driver::get();
  for (int a = 0; a < gpus.count(); ++a) {
    for (int b = 0; b < gpus.count(); ++b) {
      if (a == b) continue;
      int claimed = 0;
      check(driver.deviceCanAccessPeer(&claimed, a, b), "cuDeviceCanAccessPeer");
      const uint32_t seed = 1000 * a + b;
      const DevicePtr target = gpus.at(b, 0), counter = gpus.at(a, 48 << 20);
      gpus.clear(b, 0, kWords * 4, 0xdeadbeef);
      check(gpus[a].launch("ctranWritePattern", 64, 256, 0, target, kWords, seed), "write pattern");
      gpus.synchronize();
      const uint32_t stored = wrongWords(gpus[b], target, seed, gpus.at(b, 48 << 20));
      const uint32_t loaded = wrongWords(gpus[a], target, seed, counter);
      gpus.clear(a, 0, kWords * 4, 0xdeadbeef);
      gpus[a].use();
      check(driver.memcpyAsync(gpus.at(a, 0), target, kWords * 4, gpus[a].stream(0)), "copy");
      gpus.synchronize();
      const uint32_t copied = wrongWords(gpus[a], gpus.at(a, 0), seed, counter);
      Row("sharing", "peer access")
          .add("from", a)
          .add("to", b)
          .add("driver_says", claimed)
          .add("wrong_after_stores", stored)
          .add("wrong_by_loads", loaded)
          .add("wrong_by_copy_engine", copied)
          .emit();
    }
  }
}

void sendFd(int socket, int fd, size_t bytes) {
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec data{&bytes, sizeof bytes};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (sendmsg(socket, &message, 0) < 0) throw std::runtime_error("sendmsg failed");
}

int receiveFd(int socket, size_t* bytes) {
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec data{bytes, sizeof *bytes};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, 0) <= 0) throw std::runtime_error("the exporting process is gone");
  int fd = -1;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (!header) throw std::runtime_error("no descriptor in the message");
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

/// Memory of one process and GPU, mapped by another process on another GPU.
void betweenProcesses(const std::string& source) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) throw std::runtime_error("socketpair");
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    try {
      size_t bytes = 0;
      const int fd = receiveFd(ends[1], &bytes);
      const int device = deviceCount() - 1;
      Gpu gpu(device, compile({"litmus", source, architecture(device), {}}));
      DeviceMemory memory = DeviceMemory::import(fd, bytes, device);
      close(fd);
      check(gpu.launch("ctranWritePattern", 64, 256, 0, memory.address(), kWords, 77u), "pattern");
      check(Driver::get().streamSynchronize(gpu.stream(0)), "sync");
      char done = 1;
      if (write(ends[1], &done, 1) != 1) _exit(1);
    } catch (const std::exception& error) {
      Row("sharing", "EXCEPTION in the importing process").add("what", error.what()).emit();
      _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  const double start = secondsNow();
  Driver::get();
  const double initialised = secondsNow();
  { DeviceGuard context(0); }
  const double contextMade = secondsNow();
  Gpu gpu(0, compile({"litmus", source, architecture(0), {}}));
  DeviceMemory memory = DeviceMemory::allocate(0, kWords * 4);
  DeviceMemory counter = DeviceMemory::allocate(0, 4096);
  const double ready = secondsNow();
  const int fd = memory.exportHandle();
  sendFd(ends[0], fd, memory.size());
  close(fd);
  char done = 0;
  const bool answered = read(ends[0], &done, 1) == 1;
  int status = 0;
  waitpid(child, &status, 0);
  const uint32_t wrong = answered ? wrongWords(gpu, memory.address(), 77, counter.address()) : ~0u;
  Row("sharing", "memory of another process by descriptor")
      .add("answered", answered ? "yes" : "NO")
      .add("wrong_words", wrong)
      .add("usable_after_peer_exit", wrong == 0 ? "yes" : "NO")
      .add("driver_init_s", initialised - start)
      .add("context_s", contextMade - initialised)
      .add("compile_module_memory_s", ready - contextMade)
      .emit();
}

/// What a fresh process pays before its first kernel.
void startUp(const std::string& source) {
  const double start = secondsNow();
  const CompileRequest request{"litmus", source, architecture(0), {}};
  const std::string cubin = compileUncached(request);
  const double compiled = secondsNow();
  compile(request);
  const double cached = secondsNow();
  compile(request);
  const double hit = secondsNow();
  int version = 0;
  Driver::get().driverGetVersion(&version);
  Row("sharing", "start-up")
      .add("driver_version", version)
      .add("nvrtc_compile_s", compiled - start)
      .add("cubin_bytes", cubin.size())
      .add("compile_or_first_cache_s", cached - compiled)
      .add("cache_hit_s", hit - cached)
      .emit();
}

}  // namespace

void sharing(const std::string& kernels) {
  betweenProcesses(kernels);  // first: it forks, which a process that uses CUDA must not
  startUp(kernels);
  Gpus gpus(kernels);
  probes(gpus);
}

}  // namespace litmus
