#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <comms/torchcomms/TorchCommTypes.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torch::comms {

/// Returns whether the elements of a contiguous tensor are in its own storage. They are not if it
/// is a subclass that wraps other tensors, or if its storage has been resized since.
bool hasMemory(const at::Tensor& tensor);
/// Returns the message about a tensor for which this is false, and the hint what to do.
std::pair<std::string, std::string> missingMemory(const at::Tensor& tensor);

/// The checks of the arguments of one call of TorchComm. Every check throws ctran::Error
/// (InvalidArgument) that says what is wrong; the communicator is untouched.
struct ArgumentChecks {
  OpName op;
  int rank;
  int size;
  at::Device device;
  std::string_view backend;

  /// Throws "dst must be in range [0, N), but got r".
  void inRange(std::string_view what, int rank) const {
    if (rank < 0 || rank >= size) [[unlikely]]
      rankOutOfRange(what, rank);
  }

  /// The tensor is dense, contiguous, not lazily conjugated or negated, and on the communicator's
  /// device.
  void usable(const at::Tensor& tensor) const {
    if (!tensor.defined() || tensor.layout() != at::kStrided || !tensor.is_contiguous() ||
        tensor.is_conj() || tensor.is_neg() || tensor.is_nested() || tensor.is_quantized() ||
        !onDevice(tensor.device())) [[unlikely]] {
      unusable(tensor);
    }
    if (!hasMemory(tensor)) [[unlikely]]
      withoutMemory(tensor);
  }
  void usable(const std::vector<at::Tensor>& tensors) const {
    for (const at::Tensor& tensor : tensors) usable(tensor);
  }

  void reducible(const ReduceOp& reduceOp) const {
    if (reduceOp.type() == RedOpType::PREMUL_SUM && !reduceOp.hasFactor()) [[unlikely]] {
      fail("PREMUL_SUM needs a factor: use ReduceOp.PREMUL_SUM(factor)");
    }
  }

  void sameType(const at::Tensor& a, const at::Tensor& b) const {
    if (a.scalar_type() != b.scalar_type()) [[unlikely]]
      typesDiffer(a, b);
  }
  void sameType(const at::Tensor& a, const std::vector<at::Tensor>& others) const {
    for (const at::Tensor& other : others) sameType(a, other);
  }

  /// There is one tensor per rank.
  void onePerRank(const std::vector<at::Tensor>& list, std::string_view message) const {
    if (list.size() != static_cast<size_t>(size)) [[unlikely]] {
      fail(std::string(message) + ": got " + std::to_string(list.size()) + " for " +
           std::to_string(size) + " ranks");
    }
  }
  void allOfSize(const std::vector<at::Tensor>& list, int64_t count,
                 std::string_view message) const;
  void require(bool condition, std::string_view message) const {
    if (!condition) [[unlikely]]
      fail(std::string(message));
  }

  /// `part` is block `rank` of `whole`, or shares no memory with it.
  void inPlaceOrApart(const at::Tensor& whole, const at::Tensor& part) const;
  /// Both are the same memory, or share none.
  void sameOrApart(const at::Tensor& a, const at::Tensor& b) const;

  /// The tensors share no memory.
  void apart(const at::Tensor& a, const at::Tensor& b) const;
  /// The tensor is of int64, and has `count` elements unless that is negative. `name` is the
  /// argument's.
  void numbers(const at::Tensor& tensor, int64_t count, std::string_view name) const;

  /// Checks the split sizes of all_to_all_v_single: `which` is "input" or "output".
  void splits(const at::Tensor& tensor, const std::vector<uint64_t>& sizes,
              const std::string& which) const;

  /// Checks the members of a new communicator.
  void members(const std::vector<int>& ranks) const;

  [[noreturn]] void fail(const std::string& message, const std::string& hint = {}) const;

 private:
  bool onDevice(at::Device other) const {
    return other.type() == device.type() &&
           (other.index() == device.index() || device.index() < 0 || other.index() < 0);
  }
  [[noreturn]] void rankOutOfRange(std::string_view what, int rank) const;
  [[noreturn]] void unusable(const at::Tensor& tensor) const;
  void withoutMemory(const at::Tensor& tensor) const;
  [[noreturn]] void typesDiffer(const at::Tensor& a, const at::Tensor& b) const;
};

/// Returns the number of elements in a row of dimension 0.
int64_t rowSize(const at::Tensor& tensor);

}  // namespace torch::comms
