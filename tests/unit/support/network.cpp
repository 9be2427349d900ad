#include "tests/unit/support/network.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace ctran::testing {
namespace {

/// The network namespace of a child that has made one and ended since.
UniqueFd newNamespace() {
  int ready[2], done[2];
  if (::pipe(ready) != 0 || ::pipe(done) != 0) throw std::runtime_error("pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(done[1]);
    const char made = ::unshare(CLONE_NEWNET) == 0 ? 1 : 0;
    char nothing;
    if (::write(ready[1], &made, 1) == 1) (void)!::read(done[0], &nothing, 1);
    ::_exit(0);
  }
  char made = 0;
  UniqueFd fd;
  if (::read(ready[0], &made, 1) == 1 && made == 1) {
    const std::string path = "/proc/" + std::to_string(child) + "/ns/net";
    fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  for (const int end : {ready[0], ready[1], done[0], done[1]}) ::close(end);
  ::waitpid(child, nullptr, 0);
  return fd;
}

}  // namespace

NetworkOfHosts::NetworkOfHosts(int hosts) {
  if (::geteuid() != 0) {
    whyNot_ = "network namespaces need root";
    return;
  }
  switch_ = newNamespace();
  for (int i = 0; i < hosts; ++i) hosts_.push_back(newNamespace());
  if (!switch_ || !hosts_.back()) {
    whyNot_ = "this machine gives no network namespaces";
    return;
  }
  if (!run(switch_, "ip link add br0 type bridge && ip link set br0 up")) return;
  for (int i = 0; i < hosts; ++i) {
    const std::string port = "v" + std::to_string(i), number = std::to_string(i + 1);
    const std::string there =
        "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(hosts_[i].get());
    if (!run(switch_, "ip link add " + port + " type veth peer name eth0 netns " + there +
                          " && ip link set " + port + " master br0 && ip link set " + port +
                          " up") ||
        !run(hosts_[i], "ip link set lo up && ip link set eth0 up && ip addr add 10.77.0." +
                            number + "/24 dev eth0 && ip -6 addr add fd77::" + number +
                            "/64 dev eth0 nodad")) {
      return;
    }
  }
}

bool NetworkOfHosts::run(const UniqueFd& where, const std::string& command) const {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setns(where.get(), CLONE_NEWNET) != 0) ::_exit(1);
    ::execl("/bin/sh", "sh", "-c", (command + " >/dev/null 2>&1").c_str(), nullptr);
    ::_exit(1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  if (status != 0) whyNot_ = "this machine cannot do: " + command;
  return status == 0;
}

void NetworkOfHosts::enter(int host) const {
  if (::setns(hosts_[host].get(), CLONE_NEWNET) != 0) throw std::runtime_error("setns");
}

void NetworkOfHosts::cut(int host) const {
  if (!run(switch_, "ip link set v" + std::to_string(host) + " nomaster")) {
    throw std::runtime_error(whyNot_);
  }
}

void NetworkOfHosts::limit(int host, int megabits) const {
  if (!run(switch_, "tc qdisc add dev v" + std::to_string(host) + " root tbf rate " +
                        std::to_string(megabits) + "mbit burst 64kb latency 50ms")) {
    throw std::runtime_error(whyNot_);
  }
}

}  // namespace ctran::testing
