#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/communicator.h"

namespace ctran {

/// Where a process can be reached by others, of this host and of others, that want to form a
/// communicator with it, again and again, without a store. Whoever knows its handle can.
class InitPoint {
 public:
  /// On this host, or as if it were on another one: see hostIdentity.
  explicit InitPoint(const std::string& host = hostIdentity());

  /// A word of ASCII, to be given to the others.
  const std::string& handle() const { return handle_; }

  /// A communicator of the processes of `handles`, rank r that of `handles[r]`: collective over
  /// them. All pass the same `occasion`, one that they have not passed before: those who mean
  /// another one wait. Of `options`, rank, size and store do not matter. `hooks` as for
  /// Communicator::run. Throws Error: InvalidArgument, Timeout naming those who did not come,
  /// PeerLost naming one that is no more.
  std::shared_ptr<Communicator> form(const std::vector<std::string>& handles,
                                     const std::string& occasion, CommunicatorOptions options,
                                     WaitHooks* hooks = nullptr);

 private:
  const std::string host_;
  Leader leader_;
  std::string handle_;
};

}  // namespace ctran
