#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ctran/bootstrap/hand_over.h"

namespace ctran {

class Communicator;

/// Notices the death of other processes of this host that hold ranks of a communicator.
class LocalWatch {
 public:
  /// `names`: the ranks in the communicator of the members of the group.
  LocalWatch(std::vector<int> names, HostGroup group);
  ~LocalWatch() { stop(); }
  LocalWatch(const LocalWatch&) = delete;
  LocalWatch& operator=(const LocalWatch&) = delete;

  /// Starts watching: a death breaks the communicator, unless the ranks of that process had left
  /// it.
  void start(const std::shared_ptr<Communicator>& communicator);
  void stop();

  /// The memory that the ranks of this host share. It stays open, so that others of the same user
  /// find it.
  const UniqueFd& memory() const { return group_.memory; }

 private:
  const std::vector<int> names_;
  HostGroup group_;
  std::vector<uint64_t> watches_;
};

}  // namespace ctran
