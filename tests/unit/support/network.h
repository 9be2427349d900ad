// Several hosts on one machine: network namespaces, joined by bridges. Needs root and `ip`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctran/os/unique_fd.h"

namespace ctran::testing {

/// Host i has the interface eth0 with the addresses 10.77.0.(i + 1) and fd77::(i + 1), and
/// loopback; with several networks also eth1 in 10.78.0.0/24 and fd78::/64, and so on. Namespaces
/// have no names: they end with this object and the processes in them, however these end.
class NetworkOfHosts {
 public:
  explicit NetworkOfHosts(int hosts, int networks = 1);

  /// Why there is none, for the reader of a skipped test; empty if it is there.
  const std::string& whyNot() const { return whyNot_; }

  /// The calling thread, and those it starts, are on that host from now on.
  void enter(int host) const;

  /// Takes the cable out: no end of a connection is told.
  void cut(int host, int network = 0) const;
  /// What leaves for the host is limited to so many megabits per second.
  void limit(int host, int megabits, int network = 0) const;

  /// Bytes that the calling thread's host has sent by an interface so far.
  static uint64_t sentBy(const std::string& interface);

 private:
  bool addHost(int host, int network) const;
  bool run(const UniqueFd& where, const std::string& command) const;

  UniqueFd switch_;
  std::vector<UniqueFd> hosts_;
  mutable std::string whyNot_;
};

}  // namespace ctran::testing
