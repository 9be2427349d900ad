#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "ctran/bootstrap/handshake.h"
#include "ctran/os/unix_socket.h"

namespace ctran::hand_over {

/// The ranks that a rank waits for, who call it: from its own host and from others.
class Callers {
 public:
  struct Guest {
    Socket near, far;  // one of them, when it has come: from this host, or another
    UniqueFd brought;  // by one of this host, and what it says of itself
    pid_t pid = 0;
    uint64_t process = 0;
  };

  /// Waits for `count` of `size` ranks, `first` and those that follow. `doorman`: for other hosts;
  /// null without a network.
  Callers(Doorman& local, Doorman* doorman, const JobKey& key, int size, int first, int count);

  bool areComplete() const { return present_ == static_cast<int>(guests_.size()); }
  std::vector<int> absent() const;
  std::vector<int> present() const;
  bool has(int rank) const;
  bool anyIsFar() const;
  Guest& guest(int rank) { return guests_[static_cast<size_t>(rank - first_)]; }
  const UniqueFd& socketOf(int rank) const;

  /// Waits until somebody calls, or says something: those of the ranks that have come, and -1 for
  /// `other`, a descriptor, who have. Throws Error: Timeout at the deadline, and for one of our own
  /// ranks that was started with another size or version.
  std::vector<int> hear(Deadline deadline, const Interrupt& interrupt, int other = -1);

 private:
  bool isExpected(int rank) const;
  void hearFar();
  void hearNear();
  void admit(Socket socket);

  Doorman& local_;
  Doorman* const doorman_;
  const int size_;
  const int first_;
  std::vector<Guest> guests_;
  std::vector<Socket> unheard_;  // have proved the key, not said who they are; oldest first
  int present_ = 0;
};

}  // namespace ctran::hand_over
