#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

namespace torch::comms {

/// Every operation of a communicator, as hooks, logs and errors name it.
enum class OpName : uint8_t {
  send,
  recv,
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  all_gather_v,
  all_gather_single,
  reduce_scatter,
  reduce_scatter_v,
  reduce_scatter_single,
  reduce_scatter_quantized,
  all_to_all_single,
  all_to_all_v_single,
  all_to_all,
  barrier,
  scatter,
  gather,
  gather_single,
  all_to_all_v_dynamic,
  device_alltoallv_single,
  alltoallv_dynamic_dispatch,
  alltoallv_dynamic_combine,
  all_to_all_v_dedup,
  all_to_all_v_dedup_combine,
  batch_op_issue,
  split,
  new_window,
  finalize,
  reconfigure,
  put,
  get,
  flush,
  signal,
  wait_signal,
};

/// "all_reduce" and so on: the method's name.
std::string_view toString(OpName op);

enum class RedOpType : uint8_t { SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, AVG };

/// "SUM" and so on.
std::string_view toString(RedOpType type);

/// A reduction. `PREMUL_SUM` carries a factor by which each rank multiplies its own contribution
/// before the sum: a number, or a tensor of one element; ranks may pass different ones.
class ReduceOp {
 public:
  using RedOpType = torch::comms::RedOpType;
  using Factor = std::variant<std::monostate, double, at::Tensor>;

  static const ReduceOp SUM;
  static const ReduceOp PRODUCT;
  static const ReduceOp MIN;
  static const ReduceOp MAX;
  static const ReduceOp BAND;
  static const ReduceOp BOR;
  static const ReduceOp BXOR;
  static const ReduceOp AVG;

  static ReduceOp PREMUL_SUM(double factor) { return {RedOpType::PREMUL_SUM, Factor(factor)}; }
  /// Throws ctran::Error unless `factor` has exactly one element.
  static ReduceOp PREMUL_SUM(at::Tensor factor);

  /// A PREMUL_SUM made this way has no factor and is refused by every operation.
  /* implicit */ ReduceOp(RedOpType type) : type_(type) {}
  /* implicit */ operator RedOpType() const { return type_; }

  RedOpType type() const { return type_; }
  const Factor& factor() const { return factor_; }
  bool hasFactor() const { return factor_.index() != 0; }
  /// The factor as a number; reads a tensor factor (for a GPU tensor this synchronises). 1 without.
  double factorAsDouble() const;

 private:
  ReduceOp(RedOpType type, Factor factor) : type_(type), factor_(std::move(factor)) {}

  RedOpType type_;
  Factor factor_;
};

}  // namespace torch::comms
