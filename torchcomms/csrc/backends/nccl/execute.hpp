#pragma once

// Templates for the operations of NcclBackend. The files that define operations include this.

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "torchcomms/csrc/backends/nccl/backend.hpp"
#include "torchcomms/csrc/backends/nccl/element.hpp"
#include "torchcomms/csrc/held.hpp"

namespace torch::comms {

namespace nccl {

inline constexpr DataType kBytes = DataType::Uint8;

inline const std::byte* readable(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

inline std::byte* writable(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

/// Multiplies the tensor by the factor, by work on the current stream.
void scale(const at::Tensor& tensor, const ReduceOp& op);

}  // namespace nccl

template <typename Calls, typename After, typename... Kept>
TorchCommBackend::WorkPtr NcclBackend::executeThen(const Call& call, Form form, const Calls& calls,
                                                   const After& after, const Kept&... more) {
  const auto hold = [&]() -> std::shared_ptr<void> {
    return held(std::tuple<Tensors, Kept...>(call.tensors(), more...));
  };
  return run(call.op, form, call.async, call.options, std::ref(calls), std::ref(after),
             std::ref(hold));
}

template <typename Calls, typename... Kept>
TorchCommBackend::WorkPtr NcclBackend::execute(const Call& call, Form form, const Calls& calls,
                                               const Kept&... more) {
  return executeThen(
      call, form, calls, [](nccl::Stream) {}, more...);
}

template <typename Calls, typename... Kept>
TorchCommBackend::WorkPtr NcclBackend::executeReduction(const Call& call, Form form,
                                                        const at::Tensor& example,
                                                        const Calls& calls, const Kept&... more) {
  const ReduceOp& reduceOp = *call.reduceOp;
  nccl::Element element = nccl::reducedElement(example, reduceOp, *library_);
  // NCCL 2.28 cannot average one rank's float8.
  if (getSize() == 1 && element.op == nccl::kAvg) element.op = nccl::kSum;
  if (reduceOp.type() != RedOpType::PREMUL_SUM) {
    return execute(
        call, form, [&](const Issue& issue) { calls(issue, element, element.op); }, more...);
  }
  if (getSize() == 1 && !device_.is_cpu() && example.element_size() > 1) {
    // NCCL 2.28.9 leaves the last elements of some sizes as they were: we multiply.
    Call onCurrent = call;
    onCurrent.async = false;
    return executeThen(
        onCurrent, form, [&](const Issue& issue) { calls(issue, element, nccl::kSum); },
        [&](nccl::Stream) { nccl::scale(example, reduceOp); }, more...);
  }
  nccl::Factor factor = nccl::factorFor(example, reduceOp);
  const bool onDevice = factor.tensor.defined();
  void* scalar =
      onDevice ? static_cast<void*>(nccl::writable(factor.tensor)) : factor.number.data();
  const auto residence =
      onDevice ? nccl::ScalarResidence::Device : nccl::ScalarResidence::HostImmediate;
  return execute(
      call, form,
      [&](const Issue& issue) {
        nccl::RedOp made = 0;
        issue.check(
            issue.library.redOpCreatePreMulSum(&made, scalar, element.type, residence, issue.comm),
            "ncclRedOpCreatePreMulSum");
        try {
          calls(issue, element, made);
        } catch (...) {
          issue.library.redOpDestroy(made, issue.comm);
          throw;
        }
        issue.check(issue.library.redOpDestroy(made, issue.comm), "ncclRedOpDestroy");
      },
      more..., factor.tensor);
}

}  // namespace torch::comms
