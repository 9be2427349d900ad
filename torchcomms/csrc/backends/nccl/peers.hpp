#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "ctran/os/unique_fd.h"

namespace torch::comms::nccl {

/// Notices that a process of this host is dead: a GPU that waits for its data would wait for ever.
/// Each rank says through the store of the communicator who it is, among those of its host, and
/// knows the others once all have said so. Any thread.
class Peers {
 public:
  Peers(c10::intrusive_ptr<c10d::Store> store, int rank) : store_(std::move(store)), rank_(rank) {}

  /// Says who this rank is. Before others may look.
  void introduce();
  /// Says that this rank will not be missed. Throws what the store does.
  void leave(c10d::Store& store);
  /// Gets to know the ranks of this host, if that has not been done. Once all have introduced
  /// themselves. Throws what the store does.
  void meet(c10d::Store& store);
  /// Ranks of this host that are dead and have not left. Throws what the store does.
  std::vector<int> findDead(c10d::Store& store);

 private:
  void remember(const std::string& introduction);
  static bool hasLeft(c10d::Store& store, int rank);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  std::mutex mutex_;
  bool met_ = false;
  std::map<int, std::shared_ptr<const ctran::UniqueFd>> alive_;  ///< of this host; a pidfd each
  std::vector<int> gone_;                                        ///< dead before we looked
};

}  // namespace torch::comms::nccl
