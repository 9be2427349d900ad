#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/communicator.h"

namespace ctran {

/// An InitPoint is where other processes, of this host and of others, can reach this one to form a
/// communicator with it, again and again, without a store. Whoever knows its handle can join.
class InitPoint {
 public:
  /// Listens on this host, or as if it were on another host, see hostIdentity.
  explicit InitPoint(const std::string& host = hostIdentity());

  /// An ASCII string to be given to the others.
  const std::string& handle() const { return handle_; }

  /// Forms a communicator of the processes of `handles`; the process of `handles[r]` becomes rank
  /// r. Collective over them. All pass the same `occasion`, which they have not passed before;
  /// processes that pass another one wait for those that pass the same. The fields rank, size and
  /// store of `options` are ignored. `hooks` are as for Communicator::run. Throws Error:
  /// InvalidArgument, Timeout naming those who did not come, PeerLost naming one that has ended.
  std::shared_ptr<Communicator> form(const std::vector<std::string>& handles,
                                     const std::string& occasion, CommunicatorOptions options,
                                     WaitHooks* hooks = nullptr);

 private:
  const std::string host_;
  Leader leader_;
  std::string handle_;
};

}  // namespace ctran
