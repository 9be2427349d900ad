#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/nccl/peers.hpp"

namespace torch::comms::nccl {

/// What the ranks of a communicator tell each other beside the library, which cannot say who is
/// missing and ends nobody else's kernels: through keys in their store. Used when something is
/// wrong, so every failure of the store is swallowed: there is an error already.
class Bulletin {
 public:
  Bulletin(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size), peers_(store_, rank, size) {}

  /// Tells the others that the communicator is broken. The first word stays.
  void announceError(const ctran::Error& error) noexcept;
  /// What another rank has announced.
  std::optional<ctran::Error> readError() noexcept;

  /// Says that this rank waits in vain in its operation number `sequence`, and looks for up to
  /// `patience` who says the same: the ranks that do not, or that wait in an earlier one.
  std::vector<int> findMissing(uint64_t sequence, std::chrono::milliseconds patience) noexcept;

  /// Before others may look.
  void introduce() { peers_.introduce(); }
  void leave() noexcept { peers_.leave(); }
  /// Ranks of this host that are dead and have not left.
  std::vector<int> findDead() noexcept;

  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  /// A connection of the watchdog's own: some thread of the program may wait in the other one.
  c10d::Store& own();
  int blamed(const ctran::Error& error) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  Peers peers_;
  c10::intrusive_ptr<c10d::Store> own_;
};

}  // namespace torch::comms::nccl
