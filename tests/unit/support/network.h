// Several hosts on one machine: network namespaces, joined by a bridge. Needs root and `ip`.
#pragma once

#include <string>
#include <vector>

#include "ctran/os/unique_fd.h"

namespace ctran::testing {

/// Host i has the interface eth0 with the addresses 10.77.0.(i + 1) and fd77::(i + 1), and
/// loopback. Namespaces have no names: they end with this object and the processes in them, however
/// these end.
class NetworkOfHosts {
 public:
  explicit NetworkOfHosts(int hosts);

  /// Why there is none, for the reader of a skipped test; empty if it is there.
  const std::string& whyNot() const { return whyNot_; }

  /// The calling thread, and those it starts, are on that host from now on.
  void enter(int host) const;

  /// Takes the cable out: no end of a connection is told.
  void cut(int host) const;
  /// What leaves for the host is limited to so many megabits per second.
  void limit(int host, int megabits) const;

 private:
  bool run(const UniqueFd& where, const std::string& command) const;

  UniqueFd switch_;
  std::vector<UniqueFd> hosts_;
  mutable std::string whyNot_;
};

}  // namespace ctran::testing
