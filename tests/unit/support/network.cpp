#include "tests/unit/support/network.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
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

/// The end of a host's cable at the switch.
std::string portOf(int host, int network) {
  return "v" + std::to_string(host) + "n" + std::to_string(network);
}

}  // namespace

NetworkOfHosts::NetworkOfHosts(int hosts, int networks) {
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
  for (int n = 0; n < networks; ++n) {
    const std::string bridge = "br" + std::to_string(n);
    if (!run(switch_, "ip link add " + bridge + " type bridge && ip link set " + bridge + " up")) {
      return;
    }
    for (int i = 0; i < hosts; ++i) {
      if (!addHost(i, n)) return;
    }
  }
}

bool NetworkOfHosts::addHost(int host, int network) const {
  const std::string port = portOf(host, network), number = std::to_string(host + 1);
  const std::string eth = "eth" + std::to_string(network), net = std::to_string(77 + network);
  const std::string there =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(hosts_[host].get());
  return run(switch_, "ip link add " + port + " type veth peer name " + eth + " netns " + there +
                          " && ip link set " + port + " master br" + std::to_string(network) +
                          " && ip link set " + port + " up") &&
         run(hosts_[host], "ip link set lo up && ip link set " + eth + " up && ip addr add 10." +
                               net + ".0." + number + "/24 dev " + eth + " && ip -6 addr add fd" +
                               net + "::" + number + "/64 dev " + eth + " nodad");
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

void NetworkOfHosts::cut(int host, int network) const {
  if (!run(switch_, "ip link set " + portOf(host, network) + " nomaster")) {
    throw std::runtime_error(whyNot_);
  }
}

void NetworkOfHosts::limit(int host, int megabits, int network) const {
  if (!run(switch_, "tc qdisc add dev " + portOf(host, network) + " root tbf rate " +
                        std::to_string(megabits) + "mbit burst 64kb latency 50ms")) {
    throw std::runtime_error(whyNot_);
  }
}

uint64_t NetworkOfHosts::sentBy(const std::string& interface) {
  std::ifstream devices("/proc/thread-self/net/dev");
  for (std::string line; std::getline(devices, line);) {
    const size_t name = line.find(interface + ":");
    if (name == std::string::npos) continue;
    std::istringstream numbers(line.substr(name + interface.size() + 1));
    uint64_t number = 0;
    for (int i = 0; i < 9; ++i) numbers >> number;  // eight of what it has received come first
    return number;
  }
  throw std::runtime_error("no interface " + interface);
}

}  // namespace ctran::testing
