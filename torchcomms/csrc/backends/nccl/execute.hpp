#pragma once

// How operations of NcclBackend are put together. Included by those files that define some.

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "torchcomms/csrc/backends/nccl/backend.hpp"
#include "torchcomms/csrc/backends/nccl/element.hpp"

namespace torch::comms {

namespace nccl {

inline constexpr DataType kBytes = DataType::Uint8;

inline const std::byte* readable(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

inline std::byte* writable(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

/// Multiplies by the factor, by work on the current stream.
void scale(const at::Tensor& tensor, const ReduceOp& op);

}  // namespace nccl

template <typename Calls, typename After, typename... Held>
TorchCommBackend::WorkPtr NcclBackend::executeThen(OpName op, Form form, bool async_op,
                                                   const OpOptions& options, const Calls& calls,
                                                   const After& after, const Held&... tensors) {
  const auto hold = [&]() -> std::shared_ptr<void> {
    return std::make_shared<std::tuple<Held...>>(tensors...);
  };
  return run(op, form, async_op, options, std::ref(calls), std::ref(after), std::ref(hold));
}

template <typename Calls, typename... Held>
TorchCommBackend::WorkPtr NcclBackend::execute(OpName op, Form form, bool async_op,
                                               const OpOptions& options, const Calls& calls,
                                               const Held&... tensors) {
  return executeThen(
      op, form, async_op, options, calls, [](nccl::Stream) {}, tensors...);
}

template <typename Calls, typename... Held>
TorchCommBackend::WorkPtr NcclBackend::executeReduction(
    OpName op, Form form, bool async_op, const OpOptions& options, const at::Tensor& example,
    const ReduceOp& reduceOp, const Calls& calls, const Held&... tensors) {
  nccl::Element element = nccl::reducedElement(example, reduceOp, *library_);
  // NCCL 2.28 cannot average one rank's float8.
  if (getSize() == 1 && element.op == nccl::kAvg) element.op = nccl::kSum;
  if (reduceOp.type() != RedOpType::PREMUL_SUM) {
    return execute(
        op, form, async_op, options, [&](const Call& call) { calls(call, element, element.op); },
        tensors...);
  }
  if (getSize() == 1 && !device_.is_cpu() && example.element_size() > 1) {
    // NCCL 2.28.9 leaves the last elements of some sizes as they were: we multiply.
    return executeThen(
        op, form, /*async_op=*/false, options,
        [&](const Call& call) { calls(call, element, nccl::kSum); },
        [&](nccl::Stream) { nccl::scale(example, reduceOp); }, tensors...);
  }
  nccl::Factor factor = nccl::factorFor(example, reduceOp);
  const bool onDevice = factor.tensor.defined();
  void* scalar =
      onDevice ? static_cast<void*>(nccl::writable(factor.tensor)) : factor.number.data();
  const auto residence =
      onDevice ? nccl::ScalarResidence::Device : nccl::ScalarResidence::HostImmediate;
  return execute(
      op, form, async_op, options,
      [&](const Call& call) {
        nccl::RedOp made = 0;
        call.check(
            call.library.redOpCreatePreMulSum(&made, scalar, element.type, residence, call.comm),
            "ncclRedOpCreatePreMulSum");
        try {
          calls(call, element, made);
        } catch (...) {
          call.library.redOpDestroy(made, call.comm);
          throw;
        }
        call.check(call.library.redOpDestroy(made, call.comm), "ncclRedOpDestroy");
      },
      tensors..., factor.tensor);
}

}  // namespace torch::comms
