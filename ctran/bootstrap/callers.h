#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "ctran/bootstrap/handshake.h"
#include "ctran/os/unix_socket.h"

namespace ctran {

/// Whether the process of a rank has ended, as far as others can see.
using HasEnded = std::function<bool(int rank)>;

}  // namespace ctran

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

  /// Asks now and then whether a rank that has not come has ended; each time after twice as long,
  /// as every question is a call to it.
  void watch(HasEnded hasEnded) { hasEnded_ = std::move(hasEnded); }

  bool areComplete() const { return present_ == static_cast<int>(guests_.size()); }
  std::vector<int> absent() const;
  std::vector<int> present() const;
  bool has(int rank) const;
  bool anyIsFar() const;
  Guest& guest(int rank) { return guests_[static_cast<size_t>(rank - first_)]; }
  const UniqueFd& socketOf(int rank) const;

  /// Waits until somebody calls, or says something: those of the ranks that have come, and -1 for
  /// `other`, a descriptor, who have; or one that has not come, and has ended. Throws Error:
  /// Timeout at the deadline, and for one of our own ranks that was started with another size or
  /// version.
  std::vector<int> hear(Deadline deadline, const Interrupt& interrupt, int other = -1);

 private:
  static constexpr std::chrono::milliseconds kFirstLook{250};

  bool isExpected(int rank) const;
  std::vector<int> ended();
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
  HasEnded hasEnded_;
  const Deadline began_ = std::chrono::steady_clock::now();
  Deadline nextLook_ = began_ + kFirstLook;
};

}  // namespace ctran::hand_over
