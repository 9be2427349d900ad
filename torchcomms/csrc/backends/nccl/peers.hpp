#pragma once

#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "ctran/os/unique_fd.h"

namespace torch::comms::nccl {

/// Notices that a process of this host is dead: a GPU that waits for its data would wait for ever.
/// Ranks say through the store of their communicator who they are; others look when they have
/// waited for a while, so that nobody reads anything as long as all goes well.
class Peers {
 public:
  Peers(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}

  /// Says who this rank is. Before others may look.
  void introduce();
  /// Says that this rank will not be missed.
  void leave() noexcept;
  /// Ranks of this host that are dead and have not left. Throws what the store does.
  std::vector<int> findDead(c10d::Store& store);

 private:
  void meet(c10d::Store& store);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  bool met_ = false;
  std::map<int, ctran::UniqueFd> alive_;  ///< of this host; a pidfd each
  std::vector<int> gone_;                 ///< dead before we looked
};

}  // namespace torch::comms::nccl
