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

/// Returns whether the process of a rank has ended, as far as others can see.
using HasEnded = std::function<bool(int rank)>;

}  // namespace ctran

namespace ctran::hand_over {

/// The ranks for which a rank waits, and which call it: from its own host and from others.
class JoiningRanks {
 public:
  struct Joiner {
    Socket near, far;  // one of them, once it has come: `near` from this host, `far` from another
    UniqueFd brought;  // brought by a rank of this host, with what it says of itself
    pid_t pid = 0;
    uint64_t process = 0;
  };

  /// Waits for `count` of `size` ranks, starting at `first`. `acceptor` hears other hosts; null
  /// without a network.
  JoiningRanks(Acceptor& local, Acceptor* acceptor, const JobKey& key, int size, int first,
               int count);

  /// Makes `hear` ask now and then whether a rank that has not come has ended. It asks at intervals
  /// that double, because every question is a call to that rank.
  void watch(HasEnded hasEnded) { hasEnded_ = std::move(hasEnded); }

  bool areComplete() const { return present_ == static_cast<int>(joiners_.size()); }
  std::vector<int> absent() const;
  std::vector<int> present() const;
  bool has(int rank) const;
  bool anyIsFar() const;
  Joiner& joiner(int rank) { return joiners_[static_cast<size_t>(rank - first_)]; }
  const UniqueFd& socketOf(int rank) const;

  /// Waits until a rank calls or says something, then returns who has: ranks that have come; -1 for
  /// `other`, a descriptor; or a rank that has not come, and has ended. Throws Error: Timeout at
  /// the deadline, and other kinds for a rank of this group that was started with another size or
  /// version.
  std::vector<int> hear(Deadline deadline, const Interrupt& interrupt, int other = -1);

 private:
  static constexpr std::chrono::milliseconds kFirstLook{250};

  bool isExpected(int rank) const;
  std::vector<int> ended();
  void hearFar();
  void hearNear();
  void admit(Socket socket);

  Acceptor& local_;
  Acceptor* const acceptor_;
  const int size_;
  const int first_;
  std::vector<Joiner> joiners_;
  std::vector<Socket> unheard_;  // have proved the key, but not yet said who they are; oldest first
  int present_ = 0;
  HasEnded hasEnded_;
  const Deadline began_ = std::chrono::steady_clock::now();
  Deadline nextLook_ = began_ + kFirstLook;
};

}  // namespace ctran::hand_over
