#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ctran/bootstrap/handshake.h"
#include "ctran/os/unix_socket.h"

namespace ctran {

/// A connection to a Acceptor of this host, or the reason why there is none although somebody
/// listens.
struct LocalCall {
  Socket socket;
  std::string why;
  bool somebodyListens = false;
};

/// Calls the Acceptor that has this name. Both ends run as the same user, or one of them as root,
/// and both prove the key before anything else is said. Throws Error(Timeout) at the deadline.
LocalCall callLocal(const std::string& name, const JobKey& key, Deadline deadline,
                    const Interrupt& interrupt = nullptr);

/// Waits as long as the caller is Pending. Throws Error(Timeout) at the deadline.
Connector::State awaitVerdict(Connector& connector, Deadline deadline, const Interrupt& interrupt);

/// Returns a name for a Acceptor of this host that nobody can guess without the bytes, of which it
/// uses the first twelve.
std::string socketName(std::span<const std::byte> bytes);
std::string freshSocketName();

}  // namespace ctran
