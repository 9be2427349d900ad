#include <ATen/ops/randint.h>
#include <algorithm>

#include <comms/torchcomms/TorchComm.hpp>
#include <numeric>
#include <optional>

#include "ctran/base/config.h"
#include "ctran/base/error.h"
#include "ctran/collective/preference.h"
#include "ctran/engine/create.h"
#include "ctran/trace/preparation.h"
#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/call_recorder.hpp"
#include "torchcomms/csrc/hook_registry.hpp"
#include "torchcomms/csrc/profiled_call.hpp"

namespace torch::comms {

namespace {

/// Names are parts of keys of stores, which have limits of their own.
constexpr size_t kMostNameBytes = 1024;

void checkName(const std::string& name) {
  if (name.size() <= kMostNameBytes) return;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "a communicator's name has at most " + std::to_string(kMostNameBytes) +
                         " bytes, and this one " + std::to_string(name.size()));
}

/// The message also says how many elements there are, and how many there should be.
void requireElements(const ArgumentChecks& check, int64_t got, int64_t wanted,
                     std::string_view message) {
  if (got == wanted) [[likely]]
    return;
  check.require(false, std::string(message) + ": got " + std::to_string(got) +
                           " elements instead of " + std::to_string(wanted));
}

/// Hints of a prefix of ours are known by name, whichever backend is to serve; others belong to
/// others. `known`: the one of backend ncclx, if it may be given here.
void checkMembers(const Hints& hints, std::string_view known) {
  for (const auto& [key, value] : hints) {
    if (!key.starts_with("ncclx::") || key == known) continue;
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       known.empty() ? "a call knows no hint " + key
                                     : "a communicator knows no hint " + key +
                                           "; of that prefix there is " + std::string(known));
  }
}

void checkHintsOfCall(const Hints& hints) {
  checkMembers(hints, {});
  static_cast<void>(ctran::callHints({hints.begin(), hints.end()}, false));
}

void checkHintsOfCommunicator(const Hints& hints) {
  checkMembers(hints, "ncclx::member");
  ctran::checkHints({hints.begin(), hints.end()});
}

/// For the calls that are no operations.
void requireNotFinalized(const TorchComm& comm, const char* call) {
  if (!comm.isFinalized()) return;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "TorchComm '" + std::string(comm.getCommName()) + "' already finalized", {},
                     call);
}

std::vector<int> firstRanks(int count) {
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

TorchComm::TorchComm(std::shared_ptr<TorchCommBackend> backend)
    : TorchComm(backend, firstRanks(backend->getSize())) {}

TorchComm::TorchComm(std::shared_ptr<TorchCommBackend> backend, std::vector<int> ranks)
    : impl_(std::move(backend)),
      device_(impl_->getDevice()),
      rank_(impl_->getRank()),
      size_(impl_->getSize()),
      ranks_(std::move(ranks)),
      hooks_(std::make_shared<HookRegistry>()) {
  hooks_->record(CallRecorder::of(*impl_, ranks_));
}

ArgumentChecks TorchComm::begin(OpName op) const {
  const ArgumentChecks check{op, rank_, size_, device_, impl_->getBackendName()};
  if (finalized_) [[unlikely]] {
    check.fail("TorchComm '" + std::string(getCommName()) + "' already finalized");
  }
  return check;
}

template <typename Args, typename Issue, typename... Fields>
TorchComm::WorkPtr TorchComm::hooked(OpName op, bool async_op, const OpOptions& options,
                                     Issue issue, const Fields&... fields) {
  if (!options.hints.empty()) [[unlikely]]
    checkHintsOfCall(options.hints);
  const bool isSeen = ProfiledCall::isSeen();
  CallRecorder* const recorder = hooks_->recorder();
  if (!hooks_->active() && !isSeen && recorder == nullptr) [[likely]]
    return issue();
  const auto timeout = options.timeout == kNoTimeout ? getOptions().timeout : options.timeout;
  const PreHookArgs args = Args{{async_op, timeout}, fields...};
  std::optional<ProfiledCall> profiled;
  if (isSeen) profiled.emplace(*impl_, op, viewOf(args));
  const auto recorded = [&] {
    return recorder != nullptr ? recorder->around(op, args, issue) : issue();
  };
  return hooks_->active() ? hooks_->around(op, args, recorded) : recorded();
}

void TorchComm::finalize() {
  begin(OpName::finalize);
  hooks_->before(OpName::finalize, HookRegistry::kNoOpId, FinalizePreHookArgs{});
  finalized_ = true;
  std::exception_ptr mismatch;
  try {
    impl_->finalize();
  } catch (const ctran::Error& error) {
    if (error.kind() != ctran::ErrorKind::Mismatch) throw;
    mismatch = std::current_exception();  // it is finalized all the same
  }
  if (hooks_->recorder() != nullptr) hooks_->recorder()->left();
  hooks_->after(HookRegistry::kNoOpId, FinalizePostHookArgs{});
  hooks_->clear();  // nothing calls them any more, and they may hold this communicator
  if (mismatch) std::rethrow_exception(mismatch);
}

RemovableHandle TorchComm::registerPreHook(PreHook hook) {
  requireNotFinalized(*this, "register_pre_hook");
  return hooks_->addPre(std::move(hook));
}

RemovableHandle TorchComm::registerPostHook(PostHook hook) {
  requireNotFinalized(*this, "register_post_hook");
  return hooks_->addPost(std::move(hook));
}

RemovableHandle TorchComm::registerAbortHook(AbortHook hook) {
  requireNotFinalized(*this, "register_abort_hook");
  RemovableHandle handle = hooks_->addAbort(std::move(hook));
  listenForFailures();
  return handle;
}

void TorchComm::listenForFailures() {
  impl_->setFailureListener([hooks = std::weak_ptr<HookRegistry>(hooks_)](bool processEnds) {
    if (const auto alive = hooks.lock()) alive->broken(processEnds);
  });
}

void TorchComm::abort() {
  if (impl_->isAbortSupported()) hooks_->broken(/*toTheEnd=*/true);
  impl_->abort();
}

TorchComm::WorkPtr TorchComm::send(const at::Tensor& tensor, int dst, bool async_op,
                                   const SendOptions& options) {
  const ArgumentChecks check = begin(OpName::send);
  check.inRange("dst", dst);
  check.usable(tensor);
  return hooked<SendPreHookArgs>(
      OpName::send, async_op, options, [&] { return impl_->send(tensor, dst, async_op, options); },
      tensor, dst);
}

TorchComm::WorkPtr TorchComm::recv(at::Tensor& tensor, int src, bool async_op,
                                   const RecvOptions& options) {
  const ArgumentChecks check = begin(OpName::recv);
  check.inRange("src", src);
  check.usable(tensor);
  return hooked<RecvPreHookArgs>(
      OpName::recv, async_op, options, [&] { return impl_->recv(tensor, src, async_op, options); },
      tensor, src);
}

TorchComm::WorkPtr TorchComm::recvAnySource(at::Tensor& tensor, bool async_op,
                                            const RecvOptions& options) {
  const ArgumentChecks check = begin(OpName::recv);
  check.usable(tensor);
  return hooked<RecvPreHookArgs>(
      OpName::recv, async_op, options,
      [&] { return impl_->recvAnySource(tensor, async_op, options); }, tensor, -1);
}

void TorchComm::checkMessage(const P2POp& op) const {
  const ArgumentChecks check = begin(OpName::batch_op_issue);
  check.inRange(op.type == P2POp::Type::SEND ? "dst" : "src", op.peer);
  check.usable(op.tensor);
}

TorchComm::WorkPtr TorchComm::batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                                             const BatchP2POptions& options) {
  begin(OpName::batch_op_issue).require(!ops.empty(), "Cannot issue empty batch operation");
  for (const P2POp& op : ops) checkMessage(op);
  return hooked<BatchOpIssuePreHookArgs>(
      OpName::batch_op_issue, async_op, options,
      [&] { return impl_->batch_op_issue(ops, async_op, options); }, ops, ops.size());
}

TorchComm::WorkPtr TorchComm::broadcast(at::Tensor& tensor, int root, bool async_op,
                                        const BroadcastOptions& options) {
  const ArgumentChecks check = begin(OpName::broadcast);
  check.inRange("root", root);
  check.usable(tensor);
  return hooked<BroadcastPreHookArgs>(
      OpName::broadcast, async_op, options,
      [&] { return impl_->broadcast(tensor, root, async_op, options); }, tensor, root);
}

TorchComm::WorkPtr TorchComm::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                         const AllReduceOptions& options) {
  const ArgumentChecks check = begin(OpName::all_reduce);
  check.usable(tensor);
  check.reducible(op);
  return hooked<AllReducePreHookArgs>(
      OpName::all_reduce, async_op, options,
      [&] { return impl_->all_reduce(tensor, op, async_op, options); }, tensor, op);
}

TorchComm::WorkPtr TorchComm::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                     bool async_op, const ReduceOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce);
  check.inRange("root", root);
  check.usable(tensor);
  check.reducible(op);
  return hooked<ReducePreHookArgs>(
      OpName::reduce, async_op, options,
      [&] { return impl_->reduce(tensor, root, op, async_op, options); }, tensor, root, op);
}

TorchComm::WorkPtr TorchComm::all_gather(const Tensors& tensor_list, const at::Tensor& tensor,
                                         bool async_op, const AllGatherOptions& options) {
  const ArgumentChecks check = begin(OpName::all_gather);
  check.onePerRank(tensor_list, "tensor_list size must equal comm_size for all_gather");
  check.usable(tensor);
  check.usable(tensor_list);
  check.sameType(tensor, tensor_list);
  check.allOfSize(tensor_list, tensor.numel(),
                  "All tensors in tensor_list must have same size as input tensor");
  return hooked<AllGatherPreHookArgs>(
      OpName::all_gather, async_op, options,
      [&] { return impl_->all_gather(tensor_list, tensor, async_op, options); }, tensor,
      tensor_list);
}

TorchComm::WorkPtr TorchComm::all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor,
                                           bool async_op, const AllGatherOptions& options) {
  const ArgumentChecks check = begin(OpName::all_gather_v);
  check.onePerRank(tensor_list, "tensor_list size must equal comm_size for all_gather_v");
  check.usable(tensor);
  check.usable(tensor_list);
  check.sameType(tensor, tensor_list);
  requireElements(check, tensor_list[rank_].numel(), tensor.numel(),
                  "Output tensor size must equal input tensor size for all_gather_v");
  return hooked<AllGatherVPreHookArgs>(
      OpName::all_gather_v, async_op, options,
      [&] { return impl_->all_gather_v(tensor_list, tensor, async_op, options); }, tensor,
      tensor_list);
}

TorchComm::WorkPtr TorchComm::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                                bool async_op,
                                                const AllGatherSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::all_gather_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  requireElements(check, output.numel(), input.numel() * size_,
                  "Output tensor size must be input_size * comm_size for all_gather_single");
  check.inPlaceOrApart(output, input);
  return hooked<AllGatherSinglePreHookArgs>(
      OpName::all_gather_single, async_op, options,
      [&] { return impl_->all_gather_single(output, input, async_op, options); }, input, output);
}

TorchComm::WorkPtr TorchComm::reduce_scatter(at::Tensor& output, const Tensors& input_list,
                                             const ReduceOp& op, bool async_op,
                                             const ReduceScatterOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce_scatter);
  check.onePerRank(input_list, "input_list size must equal comm_size for reduce_scatter");
  check.usable(output);
  check.usable(input_list);
  check.sameType(output, input_list);
  check.reducible(op);
  check.allOfSize(input_list, output.numel(),
                  "All input tensors must have same size as output tensor");
  return hooked<ReduceScatterPreHookArgs>(
      OpName::reduce_scatter, async_op, options,
      [&] { return impl_->reduce_scatter(output, input_list, op, async_op, options); }, input_list,
      output, op);
}

TorchComm::WorkPtr TorchComm::reduce_scatter_v(at::Tensor& output, const Tensors& input_list,
                                               const ReduceOp& op, bool async_op,
                                               const ReduceScatterOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce_scatter_v);
  check.onePerRank(input_list, "input_list size must equal comm_size for reduce_scatter_v");
  check.usable(output);
  check.usable(input_list);
  check.sameType(output, input_list);
  check.reducible(op);
  requireElements(check, input_list[rank_].numel(), output.numel(),
                  "Output tensor size must equal input tensor size for reduce_scatter_v");
  return hooked<ReduceScatterVPreHookArgs>(
      OpName::reduce_scatter_v, async_op, options,
      [&] { return impl_->reduce_scatter_v(output, input_list, op, async_op, options); },
      input_list, output, op);
}

TorchComm::WorkPtr TorchComm::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                                    const ReduceOp& op, bool async_op,
                                                    const ReduceScatterSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce_scatter_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  check.reducible(op);
  requireElements(check, input.numel(), output.numel() * size_,
                  "Input tensor size must be output_size * comm_size for reduce_scatter_single");
  check.inPlaceOrApart(input, output);
  return hooked<ReduceScatterSinglePreHookArgs>(
      OpName::reduce_scatter_single, async_op, options,
      [&] { return impl_->reduce_scatter_single(output, input, op, async_op, options); }, input,
      output, op);
}

TorchComm::WorkPtr TorchComm::reduce_scatter_quantized(at::Tensor& output, const at::Tensor& input,
                                                       const ReduceOp& op, const at::Tensor& seed,
                                                       bool async_op,
                                                       const ReduceScatterSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::reduce_scatter_quantized);
  check.usable(output);
  check.usable(input);
  check.require(input.scalar_type() == at::kFloat && output.scalar_type() == at::kFloat,
                "Input and output must be float32 tensors for reduce_scatter_quantized");
  check.require(op.type() == RedOpType::SUM || op.type() == RedOpType::AVG,
                "op must be SUM or AVG for reduce_scatter_quantized");
  requireElements(check, input.numel(), output.numel() * size_,
                  "Input tensor size must be output_size * comm_size for reduce_scatter_quantized");
  check.inPlaceOrApart(input, output);
  at::Tensor number = seed;
  if (!number.defined()) number = at::randint(int64_t{1} << 62, {1}, at::kLong);
  check.require(number.scalar_type() == at::kLong && number.numel() == 1,
                "seed must be an int64 tensor of one element for reduce_scatter_quantized");
  if (!number.device().is_cpu()) check.usable(number);
  return hooked<ReduceScatterSinglePreHookArgs>(
      OpName::reduce_scatter_quantized, async_op, options,
      [&] { return impl_->reduce_scatter_quantized(output, input, op, number, async_op, options); },
      input, output, op);
}

TorchComm::WorkPtr TorchComm::all_to_all_single(at::Tensor& output, const at::Tensor& input,
                                                bool async_op,
                                                const AllToAllSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::all_to_all_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  requireElements(check, input.numel(), output.numel(),
                  "Input and output tensors must have same size for all_to_all_single");
  check.require(input.numel() % size_ == 0,
                "Tensor size must be divisible by comm_size for all_to_all_single");
  check.sameOrApart(output, input);
  return hooked<AllToAllSinglePreHookArgs>(
      OpName::all_to_all_single, async_op, options,
      [&] { return impl_->all_to_all_single(output, input, async_op, options); }, input, output);
}

TorchComm::WorkPtr TorchComm::all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                                                  const std::vector<uint64_t>& output_split_sizes,
                                                  const std::vector<uint64_t>& input_split_sizes,
                                                  bool async_op,
                                                  const AllToAllvSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::all_to_all_v_single);
  check.usable(output);
  check.usable(input);
  check.sameType(input, output);
  check.splits(output, output_split_sizes, "output");
  check.splits(input, input_split_sizes, "input");
  check.require(rowSize(output) == rowSize(input),
                "Rows of input and output must have same size for all_to_all_v_single");
  check.require(input_split_sizes[rank_] == output_split_sizes[rank_],
                "What a rank sends to itself must have one size in input_split_sizes and "
                "output_split_sizes for all_to_all_v_single");
  return hooked<AllToAllVSinglePreHookArgs>(
      OpName::all_to_all_v_single, async_op, options,
      [&] {
        return impl_->all_to_all_v_single(output, input, output_split_sizes, input_split_sizes,
                                          async_op, options);
      },
      input, output, input_split_sizes, output_split_sizes);
}

TorchComm::WorkPtr TorchComm::all_to_all(const Tensors& output_tensor_list,
                                         const Tensors& input_tensor_list, bool async_op,
                                         const AllToAllOptions& options) {
  const ArgumentChecks check = begin(OpName::all_to_all);
  check.onePerRank(output_tensor_list, "Tensor list sizes must equal comm_size for all_to_all");
  check.onePerRank(input_tensor_list, "Tensor list sizes must equal comm_size for all_to_all");
  check.usable(output_tensor_list);
  check.usable(input_tensor_list);
  check.sameType(input_tensor_list[0], input_tensor_list);
  check.sameType(input_tensor_list[0], output_tensor_list);
  check.require(input_tensor_list[rank_].numel() == output_tensor_list[rank_].numel(),
                "What a rank sends to itself must have same size in input and output for "
                "all_to_all");
  return hooked<AllToAllPreHookArgs>(
      OpName::all_to_all, async_op, options,
      [&] { return impl_->all_to_all(output_tensor_list, input_tensor_list, async_op, options); },
      input_tensor_list, output_tensor_list);
}

TorchComm::WorkPtr TorchComm::exchangeRows(const RowExchangeCall& call, bool async_op,
                                           const AllToAllvSingleOptions& options) {
  return hooked<AllToAllVDynamicPreHookArgs>(
      call.op, async_op, options, [&] { return impl_->exchange_rows(call, async_op, options); },
      call.input, call.output, call.sendCounts,
      call.received.defined() ? call.received : call.expected);
}

TorchComm::WorkPtr TorchComm::barrier(bool async_op, const BarrierOptions& options) {
  begin(OpName::barrier);
  return hooked<BarrierPreHookArgs>(OpName::barrier, async_op, options,
                                    [&] { return impl_->barrier(async_op, options); });
}

TorchComm::WorkPtr TorchComm::scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list,
                                      int root, bool async_op, const ScatterOptions& options) {
  const ArgumentChecks check = begin(OpName::scatter);
  check.inRange("root", root);
  check.usable(output_tensor);
  if (rank_ == root) {
    check.onePerRank(input_tensor_list, "input_tensor_list size must equal comm_size for scatter");
    check.usable(input_tensor_list);
    check.sameType(output_tensor, input_tensor_list);
    check.allOfSize(input_tensor_list, output_tensor.numel(),
                    "All input tensors must have same size as output tensor");
  }
  return hooked<ScatterPreHookArgs>(
      OpName::scatter, async_op, options,
      [&] { return impl_->scatter(output_tensor, input_tensor_list, root, async_op, options); },
      input_tensor_list, output_tensor, root);
}

TorchComm::WorkPtr TorchComm::gather(const Tensors& output_tensor_list,
                                     const at::Tensor& input_tensor, int root, bool async_op,
                                     const GatherOptions& options) {
  const ArgumentChecks check = begin(OpName::gather);
  check.inRange("root", root);
  check.usable(input_tensor);
  if (rank_ == root) {
    check.onePerRank(output_tensor_list, "output_tensor_list size must equal comm_size for gather");
    check.usable(output_tensor_list);
    check.sameType(input_tensor, output_tensor_list);
    check.allOfSize(output_tensor_list, input_tensor.numel(),
                    "All output tensors must have same size as input tensor");
  }
  return hooked<GatherPreHookArgs>(
      OpName::gather, async_op, options,
      [&] { return impl_->gather(output_tensor_list, input_tensor, root, async_op, options); },
      input_tensor, output_tensor_list, root);
}

TorchComm::WorkPtr TorchComm::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                            bool async_op, const GatherSingleOptions& options) {
  const ArgumentChecks check = begin(OpName::gather_single);
  check.inRange("root", root);
  check.usable(input);
  if (rank_ == root) {
    check.usable(output);
    check.sameType(input, output);
    requireElements(check, output.numel(), input.numel() * size_,
                    "Output tensor size must be input_size * comm_size for gather_single");
    check.inPlaceOrApart(output, input);
  }
  return hooked<GatherSinglePreHookArgs>(
      OpName::gather_single, async_op, options,
      [&] { return impl_->gather_single(output, input, root, async_op, options); }, input, output,
      root);
}

std::shared_ptr<TorchComm> TorchComm::split(const std::vector<int>& ranks,
                                            const std::string& name) {
  return split(ranks, name, getOptions());
}

std::shared_ptr<TorchComm> TorchComm::split(const std::vector<int>& ranks, const std::string& name,
                                            const CommOptions& options) {
  begin(OpName::split).members(ranks);
  CommOptions childOptions = options;
  childOptions.rank.reset();
  childOptions.size.reset();
  std::string childName = name;
  if (childName.empty()) childName = std::string(getCommName()) + "/" + std::to_string(splits_);
  checkName(childName);
  childOptions.name = childName;
  const uint64_t id = HookRegistry::nextOpId();
  hooks_->before(OpName::split, id, SplitPreHookArgs{ranks, childName});
  ++splits_;  // on every rank, member of the child or not: names stay agreed
  std::shared_ptr<TorchComm> made;
  if (std::shared_ptr<TorchCommBackend> child = impl_->split(ranks, childName, childOptions)) {
    std::vector<int> members;
    for (const int r : ranks) members.push_back(ranks_[r]);
    made.reset(new TorchComm(std::move(child), std::move(members)));
  }
  hooks_->after(id, SplitPostHookArgs{made});
  return made;
}

std::shared_ptr<TorchComm> TorchComm::dup(const std::string& name) {
  return dup(name, getOptions());
}

std::shared_ptr<TorchComm> TorchComm::dup(const std::string& name, const CommOptions& options) {
  return split(firstRanks(size_), name, options);
}

std::string TorchComm::getInitHandle() const {
  requireNotFinalized(*this, "get_init_handle");
  return impl_->getInitHandle();
}

void TorchComm::reconfigure(const ReconfigureOptions& options) {
  const ArgumentChecks check = begin(OpName::reconfigure);
  check.require(getOptions().enable_reconfigure,
                "reconfigure needs a communicator made with enable_reconfigure=True");
  check.require(!options.init_handles.empty(), "reconfigure needs the handles of the new members");
  const uint64_t id = HookRegistry::nextOpId();
  hooks_->before(OpName::reconfigure, id,
                 ReconfigurePreHookArgs{options.uuid, options.init_handles});
  impl_->reconfigure(options);
  rank_ = impl_->getRank();
  size_ = impl_->getSize();
  ranks_ = firstRanks(size_);
  hooks_->record(CallRecorder::of(*impl_, ranks_, options.uuid));
  hooks_->mended();
  listenForFailures();
  hooks_->after(id, ReconfigurePostHookArgs{rank_, size_});
}

namespace {

/// Where it is now: a window may have moved it since.
auto findRegistered(const std::vector<at::Tensor>& all, const at::Tensor& tensor) {
  return std::find_if(all.begin(), all.end(), [&](const at::Tensor& one) {
    return one.const_data_ptr() == tensor.const_data_ptr();
  });
}

}  // namespace

void TorchComm::tensorRegister(const at::Tensor& tensor) {
  requireNotFinalized(*this, "tensor_register");
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_nested() ||
      !tensor.is_contiguous() || tensor.device().type() != device_.type() || !hasMemory(tensor)) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "contiguous tensor required, on " + device_.str(), {}, "tensor_register");
  }
  if (findRegistered(registered_, tensor) != registered_.end()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "Double registration error.", {},
                       "tensor_register", "call tensor_deregister() first");
  }
  const ctran::Preparation preparation;
  impl_->tensorRegister(tensor);
  registered_.push_back(tensor);
}

void TorchComm::tensorDeregister(const at::Tensor& tensor) {
  const bool usable = tensor.defined() && tensor.layout() == at::kStrided && hasMemory(tensor);
  const auto found = usable ? findRegistered(registered_, tensor) : registered_.end();
  if (found == registered_.end()) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "This tensor is not registered", {},
                       "tensor_deregister");
  }
  const ctran::Preparation preparation;
  impl_->tensorDeregister(*found);
  registered_.erase(found);
}

std::shared_ptr<c10::Allocator> TorchComm::getMemAllocator() const {
  return TorchCommFactory::get().get_allocator(std::string(getBackend()));
}

std::shared_ptr<TorchCommWindow> TorchComm::new_window(const std::optional<at::Tensor>& tensor) {
  begin(OpName::new_window);
  return makeWindow(tensor.value_or(at::Tensor()), [&](TorchCommWindow& window) {
    if (tensor) window.tensor_register(*tensor);
  });
}

std::shared_ptr<TorchCommWindow> TorchComm::window_allocate(int64_t window_size, bool cpu_buf,
                                                            std::optional<int64_t> signal_size) {
  const ArgumentChecks check = begin(OpName::new_window);
  check.require(!cpu_buf || device_.is_cpu(),
                "window_allocate: memory of the host is only for communicators of the CPU");
  check.require(window_size >= 0, "window_allocate: window_size must not be negative");
  constexpr int64_t kSignals = 64;
  constexpr int64_t kSignalBytes = 8;
  const int64_t signalBytes = signal_size.value_or(kSignals * kSignalBytes);
  check.require(signalBytes >= 0, "window_allocate: signal_size must not be negative");
  if (signalBytes % kSignalBytes != 0) {
    check.fail("window_allocate: signal_size must be a multiple of 8 bytes, one signal, but got " +
               std::to_string(signalBytes));
  }
  return makeWindow({}, [&](TorchCommWindow& window) {
    window.allocate(window_size, signalBytes / kSignalBytes);
  });
}

std::shared_ptr<TorchCommWindow> TorchComm::makeWindow(
    const at::Tensor& tensor, c10::function_ref<void(TorchCommWindow&)> prepare) {
  const uint64_t id = HookRegistry::nextOpId();
  hooks_->before(OpName::new_window, id, NewWindowPreHookArgs{tensor});
  std::shared_ptr<TorchCommWindow> window = impl_->new_window();
  window->hooks_ = hooks_;
  window->backend_ = impl_;
  prepare(*window);
  hooks_->after(id, NewWindowPostHookArgs{window});
  return window;
}

void TorchComm::setTimeout(std::chrono::milliseconds timeout) {
  requireNotFinalized(*this, "set_timeout");
  if (timeout.count() <= 0) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "timeout must be positive");
  }
  impl_->setTimeout(timeout);
}

void TorchComm::setHints(const Hints& hints) {
  requireNotFinalized(*this, "set_hints");
  checkHintsOfCommunicator(hints);
  impl_->setHints(hints);
}

void BatchSendRecv::send(const at::Tensor& tensor, int dst, int tag) {
  comm_->checkMessage({P2POp::Type::SEND, tensor, dst, tag});
  ops.push_back({P2POp::Type::SEND, tensor, dst, tag});
}

void BatchSendRecv::recv(const at::Tensor& tensor, int src, int tag) {
  comm_->checkMessage({P2POp::Type::RECV, tensor, src, tag});
  ops.push_back({P2POp::Type::RECV, tensor, src, tag});
}

c10::intrusive_ptr<TorchWork> BatchSendRecv::issue(bool async_op, const BatchP2POptions& options) {
  return comm_->batch_op_issue(ops, async_op, options);
}

std::shared_ptr<TorchComm> new_comm(const std::string& backend, at::Device device,
                                    const std::string& name, const CommOptions& options) {
  ctran::checkConfig(ctran::kConfigPrefixes);
  CommOptions made = options;
  if (!name.empty()) made.name = name;
  if (made.name.empty()) made.name = "default";
  checkName(made.name);
  if (made.timeout.count() <= 0) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument, "timeout must be positive", {}, {},
                       "see timeout= of the call, or TORCHCOMM_TIMEOUT_SECONDS");
  }
  checkHintsOfCommunicator(made.hints);
  return std::make_shared<TorchComm>(
      TorchCommFactory::get().create_backend(backend, device, made.name, made));
}

}  // namespace torch::comms
