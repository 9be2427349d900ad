// The collectives of BackendWrapper: what each asks of the communicator. Lists of tensors become
// that many operations; `results` are all tensors that a call writes, in the order of its
// arguments.

#include <algorithm>

#include "ctran/base/error.h"
#include "torchcomms/csrc/c10d/issue.hpp"
#include "torchcomms/csrc/c10d/sparse.hpp"

namespace torch::comms {

namespace {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using Works = std::vector<c10::intrusive_ptr<TorchWork>>;

[[noreturn]] void refuse(OpName name, const std::string& why) {
  throw ctran::Error(ctran::ErrorKind::InvalidArgument, std::string(toString(name)) + ": " + why,
                     {}, std::string(toString(name)));
}

void requireSome(OpName name, const Tensors& tensors) {
  if (tensors.empty()) refuse(name, "the list of tensors is empty");
}

template <typename A, typename B>
void requireAlike(OpName name, const std::vector<A>& outputs, const std::vector<B>& inputs) {
  if (outputs.empty() || outputs.size() != inputs.size()) {
    refuse(name, "needs as many outputs as inputs, and at least one: got " +
                     std::to_string(outputs.size()) + " and " + std::to_string(inputs.size()));
  }
}

ReduceOp reduceOpOf(const c10d::ReduceOp& op) {
  using Theirs = c10d::ReduceOp::RedOpType;
  switch (op.op_) {
    case Theirs::SUM:
      return RedOpType::SUM;
    case Theirs::AVG:
      return RedOpType::AVG;
    case Theirs::PRODUCT:
      return RedOpType::PRODUCT;
    case Theirs::MIN:
      return RedOpType::MIN;
    case Theirs::MAX:
      return RedOpType::MAX;
    case Theirs::BAND:
      return RedOpType::BAND;
    case Theirs::BOR:
      return RedOpType::BOR;
    case Theirs::BXOR:
      return RedOpType::BXOR;
    case Theirs::PREMUL_SUM: {
      const auto* given = static_cast<c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      if (given == nullptr) return RedOpType::PREMUL_SUM;  // refused, with a hint
      if (given->tensor_factor.defined()) return ReduceOp::PREMUL_SUM(given->tensor_factor);
      return ReduceOp::PREMUL_SUM(given->double_factor);
    }
    case Theirs::UNUSED:
      break;
  }
  throw ctran::Error(ctran::ErrorKind::InvalidArgument, "Unknown reduction of torch.distributed");
}

/// One operation for each tensor.
template <typename Issue>
c10::intrusive_ptr<TorchWork> forEach(Tensors& tensors, Issue issue) {
  Works works;
  works.reserve(tensors.size());
  for (at::Tensor& t : tensors) works.push_back(issue(t));
  return CombinedWork::of(std::move(works));
}

bool differInSize(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& t) { return t.numel() != tensors[0].numel(); });
}

Tensors flattened(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// `all` again in lists as long as those of `shape`.
std::vector<Tensors> inLists(const Tensors& all, const std::vector<Tensors>& shape) {
  std::vector<Tensors> lists;
  auto next = all.begin();
  for (const Tensors& list : shape) {
    const auto end = next + static_cast<ptrdiff_t>(list.size());
    lists.emplace_back(next, end);
    next = end;
  }
  return lists;
}

c10::intrusive_ptr<TorchWork> gatherAll(TorchComm& comm, const Tensors& outputs,
                                        const at::Tensor& input, const AllGatherOptions& options) {
  return differInSize(outputs) ? comm.all_gather_v(outputs, input, /*async_op=*/true, options)
                               : comm.all_gather(outputs, input, /*async_op=*/true, options);
}

/// Rows of dimension 0 for each rank; as many for each if none are given.
std::vector<uint64_t> splitsOf(const at::Tensor& tensor, const std::vector<int64_t>& given,
                               int size) {
  if (!given.empty()) {
    if (std::any_of(given.begin(), given.end(), [](int64_t n) { return n < 0; })) {
      refuse(OpName::all_to_all_v_single, "split sizes must not be negative");
    }
    return {given.begin(), given.end()};
  }
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (rows % size != 0) {
    refuse(OpName::all_to_all_v_single, "dimension 0 (" + std::to_string(rows) +
                                            ") must be divisible by the number of ranks (" +
                                            std::to_string(size) + ") unless splits are given");
  }
  return std::vector<uint64_t>(size, static_cast<uint64_t>(rows / size));
}

}  // namespace

BackendWrapper::WorkPtr BackendWrapper::broadcast(Tensors& tensors,
                                                  const c10d::BroadcastOptions& opts) {
  const Call call = Call::of(OpType::BROADCAST, OpName::broadcast, opts);
  requireSome(call.name, tensors);
  return collective(call, tensors, [&](Tensors& outputs) {
    return forEach(outputs, [&](at::Tensor& t) {
      return comm_->broadcast(t, static_cast<int>(opts.rootRank), true,
                              call.options<BroadcastOptions>());
    });
  });
}

BackendWrapper::WorkPtr BackendWrapper::allreduce(Tensors& tensors,
                                                  const c10d::AllreduceOptions& opts) {
  const Call call = Call::of(OpType::ALLREDUCE, OpName::all_reduce, opts);
  requireSome(call.name, tensors);
  if (tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
  const ReduceOp op = reduceOpOf(opts.reduceOp);
  return collective(call, tensors, [&](Tensors& outputs) {
    return forEach(outputs, [&](at::Tensor& t) {
      return comm_->all_reduce(t, op, true, call.options<AllReduceOptions>());
    });
  });
}

BackendWrapper::WorkPtr BackendWrapper::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return allreduce(tensors, opts);
}

BackendWrapper::WorkPtr BackendWrapper::allreduce_sparse(Tensors& tensors,
                                                         const c10d::AllreduceOptions& opts) {
  const Call call = Call::of(OpType::_ALLREDUCE_SPARSE, OpName::all_reduce, opts);
  requireSome(call.name, tensors);
  const ReduceOp op = reduceOpOf(opts.reduceOp);
  const std::lock_guard lock(issuing_);
  for (at::Tensor& t : tensors) allReduceSparse(*comm_, t, op, call.options<AllGatherOptions>());
  return wrap(call, ++sequence_, tensors, TorchWorkCompleted::shared());
}

BackendWrapper::WorkPtr BackendWrapper::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const Call call = Call::of(OpType::REDUCE, OpName::reduce, opts);
  requireSome(call.name, tensors);
  const ReduceOp op = reduceOpOf(opts.reduceOp);
  return collective(call, tensors, [&](Tensors& outputs) {
    return forEach(outputs, [&](at::Tensor& t) {
      return comm_->reduce(t, static_cast<int>(opts.rootRank), op, true,
                           call.options<ReduceOptions>());
    });
  });
}

BackendWrapper::WorkPtr BackendWrapper::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& opts) {
  const Call call = Call::of(OpType::ALLGATHER, OpName::all_gather, opts);
  requireAlike(call.name, outputs, inputs);
  return collective(call, flattened(outputs), [&](Tensors& all) {
    const std::vector<Tensors> lists = inLists(all, outputs);
    Works works;
    for (size_t i = 0; i < inputs.size(); ++i) {
      works.push_back(
          gatherAll(*comm_, lists[i], readable(inputs[i]), call.options<AllGatherOptions>()));
    }
    return CombinedWork::of(std::move(works));
  });
}

BackendWrapper::WorkPtr BackendWrapper::allgather_coalesced(std::vector<Tensors>& outputs,
                                                            Tensors& inputs,
                                                            const c10d::AllgatherOptions& opts) {
  const Call call = Call::of(OpType::ALLGATHER_COALESCED, OpName::all_gather, opts);
  requireSome(call.name, inputs);
  for (const Tensors& list : outputs) requireAlike(call.name, list, inputs);
  return collective(call, flattened(outputs), [&](Tensors& all) {
    const std::vector<Tensors> lists = inLists(all, outputs);
    Works works;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensors ofAllRanks;
      for (const Tensors& list : lists) ofAllRanks.push_back(list[i]);
      works.push_back(
          gatherAll(*comm_, ofAllRanks, readable(inputs[i]), call.options<AllGatherOptions>()));
    }
    return CombinedWork::of(std::move(works));
  });
}

BackendWrapper::WorkPtr BackendWrapper::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& opts) {
  const Call call = Call::of(OpType::_ALLGATHER_BASE, OpName::all_gather_single, opts);
  return collective(call, {output}, [&](Tensors& outputs) {
    return comm_->all_gather_single(outputs[0], readable(input), true,
                                    call.options<AllGatherSingleOptions>());
  });
}

BackendWrapper::WorkPtr BackendWrapper::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Call call = Call::of(OpType::COALESCED, OpName::all_gather_single, opts);
  requireAlike(call.name, outputs, inputs);
  return collective(call, outputs, [&](Tensors& staged) {
    size_t i = 0;
    return forEach(staged, [&](at::Tensor& t) {
      return comm_->all_gather_single(t, readable(inputs[i++]), true,
                                      call.options<AllGatherSingleOptions>());
    });
  });
}

BackendWrapper::WorkPtr BackendWrapper::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& opts) {
  const Call call = Call::of(OpType::GATHER, OpName::gather, opts);
  const bool isRoot = opts.rootRank == rank_;
  if (isRoot) requireAlike(call.name, outputs, inputs);
  requireSome(call.name, inputs);
  return collective(call, flattened(outputs), [&](Tensors& all) {
    const std::vector<Tensors> lists = inLists(all, outputs);
    Works works;
    for (size_t i = 0; i < inputs.size(); ++i) {
      works.push_back(comm_->gather(isRoot ? lists[i] : Tensors(), readable(inputs[i]),
                                    static_cast<int>(opts.rootRank), true,
                                    call.options<GatherOptions>()));
    }
    return CombinedWork::of(std::move(works));
  });
}

#if TORCHCOMMS_TORCH_SINCE(14)
BackendWrapper::WorkPtr BackendWrapper::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                           const c10d::GatherOptions& opts) {
  const Call call = Call::of(OpType::GATHER, OpName::gather_single, opts);
  // Elsewhere than at the root it is not used, and may be anything.
  Tensors results;
  if (opts.rootRank == rank_) results.push_back(output);
  return collective(call, results, [&](Tensors& outputs) {
    return comm_->gather_single(outputs.empty() ? output : outputs[0], readable(input),
                                static_cast<int>(opts.rootRank), true,
                                call.options<GatherSingleOptions>());
  });
}
#endif

BackendWrapper::WorkPtr BackendWrapper::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                const c10d::ScatterOptions& opts) {
  const Call call = Call::of(OpType::SCATTER, OpName::scatter, opts);
  const bool isRoot = opts.rootRank == rank_;
  if (isRoot) requireAlike(call.name, outputs, inputs);
  requireSome(call.name, outputs);
  return collective(call, outputs, [&](Tensors& staged) {
    size_t i = 0;
    return forEach(staged, [&](at::Tensor& t) {
      const Tensors parts = isRoot ? readable(inputs[i++]) : Tensors();
      return comm_->scatter(t, parts, static_cast<int>(opts.rootRank), true,
                            call.options<ScatterOptions>());
    });
  });
}

BackendWrapper::WorkPtr BackendWrapper::reduce_scatter(Tensors& outputs,
                                                       std::vector<Tensors>& inputs,
                                                       const c10d::ReduceScatterOptions& opts) {
  const Call call = Call::of(OpType::REDUCE_SCATTER, OpName::reduce_scatter, opts);
  requireAlike(call.name, outputs, inputs);
  const ReduceOp op = reduceOpOf(opts.reduceOp);
  return collective(call, outputs, [&](Tensors& staged) {
    size_t i = 0;
    return forEach(staged, [&](at::Tensor& t) {
      const Tensors parts = readable(inputs[i++]);
      const auto options = call.options<ReduceScatterOptions>();
      return differInSize(parts) ? comm_->reduce_scatter_v(t, parts, op, true, options)
                                 : comm_->reduce_scatter(t, parts, op, true, options);
    });
  });
}

BackendWrapper::WorkPtr BackendWrapper::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

BackendWrapper::WorkPtr BackendWrapper::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  const OpType type = outputs.size() == 1 ? OpType::_REDUCE_SCATTER_BASE : OpType::COALESCED;
  const Call call = Call::of(type, OpName::reduce_scatter_single, opts);
  requireAlike(call.name, outputs, inputs);
  const ReduceOp op = reduceOpOf(opts.reduceOp);
  return collective(call, outputs, [&](Tensors& staged) {
    size_t i = 0;
    return forEach(staged, [&](at::Tensor& t) {
      return comm_->reduce_scatter_single(t, readable(inputs[i++]), op, true,
                                          call.options<ReduceScatterSingleOptions>());
    });
  });
}

BackendWrapper::WorkPtr BackendWrapper::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& outputSplits,
                                                      std::vector<int64_t>& inputSplits,
                                                      const c10d::AllToAllOptions& opts) {
  const bool even = outputSplits.empty() && inputSplits.empty();
  const Call call = Call::of(OpType::ALLTOALL_BASE,
                             even ? OpName::all_to_all_single : OpName::all_to_all_v_single, opts);
  return collective(call, {output}, [&](Tensors& outputs) {
    const at::Tensor from = readable(input);
    if (even) {
      return comm_->all_to_all_single(outputs[0], from, true,
                                      call.options<AllToAllSingleOptions>());
    }
    return comm_->all_to_all_v_single(outputs[0], from, splitsOf(outputs[0], outputSplits, size_),
                                      splitsOf(from, inputSplits, size_), true,
                                      call.options<AllToAllvSingleOptions>());
  });
}

BackendWrapper::WorkPtr BackendWrapper::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& opts) {
  const Call call = Call::of(OpType::ALLTOALL, OpName::all_to_all, opts);
  return collective(call, outputs, [&](Tensors& staged) {
    return comm_->all_to_all(staged, readable(inputs), true, call.options<AllToAllOptions>());
  });
}

BackendWrapper::WorkPtr BackendWrapper::barrier(const c10d::BarrierOptions& opts) {
  const Call call = Call::of(OpType::BARRIER, OpName::barrier, opts);
  return collective(call, {}, [&](Tensors&) {
    return comm_->barrier(/*async_op=*/true, call.options<BarrierOptions>());
  });
}

}  // namespace torch::comms
