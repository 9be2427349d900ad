#include "ctran/collective/hosts_algorithms.h"

namespace ctran {

/// A barrier inside each host, one among the first ranks of all hosts, one inside again.
Task barrierGroup(HostsContext& hosts, const Collective& c) {
  {
    Task task = hosts.local(c);
    co_await task;
  }
  if (hosts.map.index() == 0) {
    Task task = hosts.between(hosts.rail(), c);
    co_await task;
  }
  Task task = hosts.local(c);
  co_await task;
}

}  // namespace ctran
