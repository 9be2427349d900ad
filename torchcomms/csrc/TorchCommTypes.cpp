#include <ATen/core/Tensor.h>

#include <comms/torchcomms/TorchCommTypes.hpp>

#include "ctran/base/error.h"

namespace torch::comms {

const ReduceOp ReduceOp::SUM{RedOpType::SUM};
const ReduceOp ReduceOp::PRODUCT{RedOpType::PRODUCT};
const ReduceOp ReduceOp::MIN{RedOpType::MIN};
const ReduceOp ReduceOp::MAX{RedOpType::MAX};
const ReduceOp ReduceOp::BAND{RedOpType::BAND};
const ReduceOp ReduceOp::BOR{RedOpType::BOR};
const ReduceOp ReduceOp::BXOR{RedOpType::BXOR};
const ReduceOp ReduceOp::AVG{RedOpType::AVG};

ReduceOp ReduceOp::PREMUL_SUM(at::Tensor factor) {
  if (!factor.defined() || factor.numel() != 1 || factor.is_complex()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "The factor of PREMUL_SUM must be a number or a real tensor of one element");
  }
  return {RedOpType::PREMUL_SUM, Factor(std::move(factor))};
}

double ReduceOp::factorAsDouble() const {
  if (const double* number = std::get_if<double>(&factor_)) return *number;
  if (const at::Tensor* tensor = std::get_if<at::Tensor>(&factor_))
    return tensor->item().toDouble();
  return 1.0;
}

std::string_view toString(OpName op) {
  switch (op) {
    case OpName::send:
      return "send";
    case OpName::recv:
      return "recv";
    case OpName::broadcast:
      return "broadcast";
    case OpName::all_reduce:
      return "all_reduce";
    case OpName::reduce:
      return "reduce";
    case OpName::all_gather:
      return "all_gather";
    case OpName::all_gather_v:
      return "all_gather_v";
    case OpName::all_gather_single:
      return "all_gather_single";
    case OpName::reduce_scatter:
      return "reduce_scatter";
    case OpName::reduce_scatter_v:
      return "reduce_scatter_v";
    case OpName::reduce_scatter_single:
      return "reduce_scatter_single";
    case OpName::reduce_scatter_quantized:
      return "reduce_scatter_quantized";
    case OpName::all_to_all_single:
      return "all_to_all_single";
    case OpName::all_to_all_v_single:
      return "all_to_all_v_single";
    case OpName::all_to_all:
      return "all_to_all";
    case OpName::barrier:
      return "barrier";
    case OpName::scatter:
      return "scatter";
    case OpName::gather:
      return "gather";
    case OpName::gather_single:
      return "gather_single";
    case OpName::all_to_all_v_dynamic:
      return "all_to_all_v_dynamic";
    case OpName::device_alltoallv_single:
      return "device_alltoallv_single";
    case OpName::alltoallv_dynamic_dispatch:
      return "alltoallv_dynamic_dispatch";
    case OpName::alltoallv_dynamic_combine:
      return "alltoallv_dynamic_combine";
    case OpName::all_to_all_v_dedup:
      return "all_to_all_v_dedup";
    case OpName::all_to_all_v_dedup_combine:
      return "all_to_all_v_dedup_combine";
    case OpName::batch_op_issue:
      return "batch_op_issue";
    case OpName::split:
      return "split";
    case OpName::new_window:
      return "new_window";
    case OpName::finalize:
      return "finalize";
    case OpName::reconfigure:
      return "reconfigure";
    case OpName::put:
      return "put";
    case OpName::get:
      return "get";
    case OpName::flush:
      return "flush";
    case OpName::signal:
      return "signal";
    case OpName::wait_signal:
      return "wait_signal";
  }
  return "unknown";
}

std::string_view toString(RedOpType type) {
  switch (type) {
    case RedOpType::SUM:
      return "SUM";
    case RedOpType::PRODUCT:
      return "PRODUCT";
    case RedOpType::MIN:
      return "MIN";
    case RedOpType::MAX:
      return "MAX";
    case RedOpType::BAND:
      return "BAND";
    case RedOpType::BOR:
      return "BOR";
    case RedOpType::BXOR:
      return "BXOR";
    case RedOpType::PREMUL_SUM:
      return "PREMUL_SUM";
    case RedOpType::AVG:
      return "AVG";
  }
  return "unknown";
}

}  // namespace torch::comms
