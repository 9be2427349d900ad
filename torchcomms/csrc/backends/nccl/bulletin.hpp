#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "ctran/base/error.h"

namespace torch::comms::nccl {

/// What the ranks of a communicator tell each other beside the library, which cannot say who is
/// missing and ends nobody else's kernels: through keys in their store. Used when something is
/// wrong, so every failure of the store is swallowed: there is an error already.
class Bulletin {
 public:
  Bulletin(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}

  /// Tells the others that the communicator is broken. The first word stays.
  void announceError(const ctran::Error& error) noexcept;
  /// What another rank has announced.
  std::optional<ctran::Error> readError() noexcept;

  /// Says that this rank waits in vain in its operation number `sequence`, and looks for up to
  /// `patience` who says the same: the ranks that do not, or that wait in an earlier one.
  std::vector<int> findMissing(uint64_t sequence, std::chrono::milliseconds patience) noexcept;

  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
};

}  // namespace torch::comms::nccl
