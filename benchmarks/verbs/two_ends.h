#pragma once

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

/// What benchmarks of RDMA between two processes of a host have in common.
namespace two_ends {

using Clock = std::chrono::steady_clock;

inline double microsecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

inline double medianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline void check(const std::vector<uint8_t>& memory, uint8_t expected) {
  const auto differs = [expected](uint8_t byte) { return byte != expected; };
  if (std::any_of(memory.begin(), memory.end(), differs)) {
    throw std::runtime_error("wrong bytes have arrived");
  }
}

/// Makes an End in this process and one in a child, joined by a socket, and has the first one
/// initiate and report, and the other one serve. Returns the status to exit with.
template <typename End, typename Options, typename Initiate, typename Serve>
int run(const char* program, const Options& options, const Initiate& initiate, const Serve& serve) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) return 1;
  const pid_t child = ::fork();
  if (child == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close(sockets[child == 0 ? 0 : 1]);
  ::alarm(options.seconds);
  int status = 0;
  try {
    End end(options, sockets[child == 0 ? 1 : 0]);
    if (child == 0) {
      serve(end, options);
    } else {
      initiate(end, options);
    }
    end.meet();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    status = 1;
  }
  if (child == 0) return status;
  ::close(sockets[0]);
  int childStatus = 0;
  ::waitpid(child, &childStatus, 0);
  return status | (childStatus != 0);
}

}  // namespace two_ends
