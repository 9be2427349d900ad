#include "torchcomms/csrc/backends/plugin/backend.hpp"

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>

#include <algorithm>
#include <comms/torchcomms/TorchCommFactory.hpp>
#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ctran/base/error.h"
#include "torchcomms/csrc/argument_checks.hpp"
#include "torchcomms/csrc/combined_work.hpp"

namespace torch::comms {

namespace {

using Tensors = std::vector<at::Tensor>;

constexpr size_t kErrorBytes = 1024;
constexpr int32_t kCpu = 1;  // kDLCPU

torchcomms_buffer bufferOf(const at::Tensor& tensor) {
  const DLDataType type = at::getDLDataType(tensor);
  torchcomms_buffer buffer{};
  buffer.data = const_cast<void*>(tensor.const_data_ptr());
  buffer.bytes = tensor.nbytes();
  buffer.type_code = type.code;
  buffer.type_bits = type.bits;
  buffer.type_lanes = type.lanes;
  buffer.device_type = kCpu;
  return buffer;
}

std::vector<torchcomms_buffer> buffersOf(const Tensors& tensors) {
  std::vector<torchcomms_buffer> buffers;
  buffers.reserve(tensors.size());
  for (const at::Tensor& t : tensors) buffers.push_back(bufferOf(t));
  return buffers;
}

uint32_t reduceOpOf(const ReduceOp& op) {
  switch (op.type()) {
    case RedOpType::SUM:
      return TORCHCOMMS_SUM;
    case RedOpType::PRODUCT:
      return TORCHCOMMS_PRODUCT;
    case RedOpType::MIN:
      return TORCHCOMMS_MIN;
    case RedOpType::MAX:
      return TORCHCOMMS_MAX;
    case RedOpType::BAND:
      return TORCHCOMMS_BAND;
    case RedOpType::BOR:
      return TORCHCOMMS_BOR;
    case RedOpType::BXOR:
      return TORCHCOMMS_BXOR;
    case RedOpType::PREMUL_SUM:
      return TORCHCOMMS_PREMUL_SUM;
    case RedOpType::AVG:
      return TORCHCOMMS_AVG;
  }
  return TORCHCOMMS_SUM;
}

Tensors equalParts(const at::Tensor& tensor, int size) { return tensor.view({size, -1}).unbind(); }

Tensors rowParts(const at::Tensor& tensor, const std::vector<uint64_t>& rows) {
  Tensors parts;
  int64_t start = 0;
  for (const uint64_t count : rows) {
    parts.push_back(tensor.narrow(0, start, static_cast<int64_t>(count)));
    start += static_cast<int64_t>(count);
  }
  return parts;
}

/// As much of the plug-in's table as both know.
torchcomms_plugin copied(const torchcomms_plugin& theirs) {
  torchcomms_plugin ours{};
  std::memcpy(&ours, &theirs, std::min<size_t>(theirs.size, sizeof ours));
  return ours;
}

}  // namespace

void registerPlugin(const std::string& backend, PluginEntry entry) {
  const torchcomms_plugin* given = entry(TORCHCOMMS_PLUGIN_VERSION);
  const auto fail = [&](const std::string& why) {
    throw ctran::Error(ctran::ErrorKind::Unsupported, "Backend '" + backend + "': " + why);
  };
  if (given == nullptr) {
    fail("the plug-in does not serve version " + std::to_string(TORCHCOMMS_PLUGIN_VERSION) +
         " of the plug-in interface");
  }
  if (given->version > TORCHCOMMS_PLUGIN_VERSION || given->version == 0) {
    fail("ABI version mismatch: " + std::to_string(TORCHCOMMS_PLUGIN_VERSION) +
         " != " + std::to_string(given->version));
  }
  const torchcomms_plugin plugin = copied(*given);
  if (plugin.create == nullptr || plugin.destroy == nullptr || plugin.start == nullptr ||
      plugin.test == nullptr || plugin.wait == nullptr || plugin.release == nullptr) {
    fail("the plug-in lacks one of create, destroy, start, test, wait, release");
  }
  TorchCommFactory::get().register_backend(
      backend, [backend, plugin] { return std::make_shared<PluginBackend>(backend, plugin); });
}

PluginBackend::~PluginBackend() {
  if (comm_ == nullptr) return;
  const HostWait released;
  plugin_.destroy(comm_);
}

void PluginBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  if (!device.is_cpu()) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "Plug-in backends take tensors of the CPU, not of '" + device.str() + "'");
  }
  device_ = device;
  options_ = options;
  options_.name = std::string(name);
  if (options.store) store_ = std::make_unique<PluginStore>(options.store);
  std::vector<const char*> hints;
  for (const auto& [key, value] : options_.hints) {
    hints.push_back(key.c_str());
    hints.push_back(value.c_str());
  }
  torchcomms_comm_options asked{};
  asked.size = sizeof asked;
  asked.rank = getRank();
  asked.world_size = getSize();
  asked.device_type = kCpu;
  asked.name = options_.name.c_str();
  asked.store = store_ ? store_->get() : nullptr;
  asked.timeout_ns = std::chrono::nanoseconds(options_.timeout).count();
  asked.hint_count = static_cast<uint32_t>(hints.size() / 2);
  asked.hints = hints.data();
  char error[kErrorBytes] = "no reason given";
  const HostWait released;
  comm_ = plugin_.create(&asked, error, sizeof error);
  if (comm_ == nullptr) {
    throw ctran::Error(ctran::ErrorKind::System, "Backend '" + backendName_ +
                                                     "' cannot make communicator '" +
                                                     options_.name + "': " + error);
  }
}

void PluginBackend::require(OpName name) const {
  if (comm_ != nullptr) return;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     "Communicator '" + options_.name + "' already finalized", {},
                     std::string(toString(name)));
}

void PluginBackend::finalize() {
  require(OpName::finalize);
  const HostWait released;
  for (const auto& operation : running_) operation->wait(std::nullopt, /*interruptible=*/true);
  running_.clear();
  plugin_.destroy(comm_);
  comm_ = nullptr;
}

TorchCommBackend::WorkPtr PluginBackend::start(const Asked& asked, const Tensors& inputs,
                                               const Tensors& outputs, bool async_op,
                                               const OpOptions& options) {
  require(asked.name);
  const std::vector<torchcomms_buffer> in = buffersOf(inputs);
  const std::vector<torchcomms_buffer> out = buffersOf(outputs);
  const auto timeout = options.timeout == kNoTimeout ? options_.timeout : options.timeout;
  torchcomms_call call{};
  call.size = sizeof call;
  call.kind = asked.kind;
  call.root = asked.root;
  call.tag = asked.tag;
  call.inputs = in.data();
  call.input_count = static_cast<uint32_t>(in.size());
  call.outputs = out.data();
  call.output_count = static_cast<uint32_t>(out.size());
  call.blocking = async_op ? 0 : 1;
  call.deadline_ns = monotonicNanos() + std::chrono::nanoseconds(timeout).count();
  if (asked.op != nullptr) {
    call.reduce_op = reduceOpOf(*asked.op);
    call.factor = asked.op->factorAsDouble();
  }
  char error[kErrorBytes] = "no reason given";
  torchcomms_operation* started = nullptr;
  {
    const HostWait released;
    started = plugin_.start(comm_, &call, error, sizeof error);
  }
  if (started == nullptr) {
    throw ctran::Error(
        ctran::ErrorKind::System,
        std::string(toString(asked.name)) + " on backend '" + backendName_ + "': " + error, {},
        std::string(toString(asked.name)));
  }
  Tensors held = inputs;
  held.insert(held.end(), outputs.begin(), outputs.end());
  auto operation = std::make_shared<PluginOperation>(plugin_, started, asked.name, options_.name,
                                                     call.deadline_ns, std::move(held));
  running_.erase(
      std::remove_if(running_.begin(), running_.end(),
                     [](const auto& one) { return one->status() != WorkStatus::INPROGRESS; }),
      running_.end());
  running_.push_back(operation);
  auto work = c10::make_intrusive<PluginWork>(std::move(operation));
  if (!async_op) work->wait();
  return work;
}

TorchCommBackend::WorkPtr PluginBackend::send(const at::Tensor& tensor, int dst, bool async_op,
                                              const SendOptions& options) {
  return start({OpName::send, TORCHCOMMS_SEND, dst, options.tag}, {tensor}, {}, async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::recv(at::Tensor& tensor, int src, bool async_op,
                                              const RecvOptions& options) {
  return start({OpName::recv, TORCHCOMMS_RECV, src, options.tag}, {}, {tensor}, async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::batch_op_issue(const std::vector<P2POp>& ops,
                                                        bool async_op,
                                                        const BatchP2POptions& options) {
  std::vector<WorkPtr> works;
  for (const P2POp& op : ops) {
    const bool sends = op.type == P2POp::Type::SEND;
    const Asked asked{sends ? OpName::send : OpName::recv,
                      sends ? TORCHCOMMS_SEND : TORCHCOMMS_RECV, op.peer, op.tag};
    const Tensors tensors{op.tensor};
    works.push_back(start(asked, sends ? tensors : Tensors(), sends ? Tensors() : tensors,
                          /*async_op=*/true, options));
  }
  WorkPtr all = CombinedWork::of(std::move(works));
  if (!async_op) all->wait();
  return all;
}

TorchCommBackend::WorkPtr PluginBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                                   const BroadcastOptions& options) {
  return start({OpName::broadcast, TORCHCOMMS_BROADCAST, root}, {}, {tensor}, async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op,
                                                    bool async_op,
                                                    const AllReduceOptions& options) {
  return start({OpName::all_reduce, TORCHCOMMS_ALL_REDUCE, 0, 0, &op}, {tensor}, {tensor}, async_op,
               options);
}

TorchCommBackend::WorkPtr PluginBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op,
                                                bool async_op, const ReduceOptions& options) {
  const Tensors outputs = getRank() == root ? Tensors{tensor} : Tensors();
  return start({OpName::reduce, TORCHCOMMS_REDUCE, root, 0, &op}, {tensor}, outputs, async_op,
               options);
}

TorchCommBackend::WorkPtr PluginBackend::all_gather(const Tensors& tensor_list,
                                                    const at::Tensor& tensor, bool async_op,
                                                    const AllGatherOptions& options) {
  return start({OpName::all_gather, TORCHCOMMS_ALL_GATHER}, {tensor}, tensor_list, async_op,
               options);
}

TorchCommBackend::WorkPtr PluginBackend::all_gather_v(const Tensors& tensor_list,
                                                      const at::Tensor& tensor, bool async_op,
                                                      const AllGatherOptions& options) {
  return start({OpName::all_gather_v, TORCHCOMMS_ALL_GATHER}, {tensor}, tensor_list, async_op,
               options);
}

TorchCommBackend::WorkPtr PluginBackend::all_gather_single(at::Tensor& output,
                                                           const at::Tensor& input, bool async_op,
                                                           const AllGatherSingleOptions& options) {
  return start({OpName::all_gather_single, TORCHCOMMS_ALL_GATHER}, {input},
               equalParts(output, getSize()), async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::reduce_scatter(at::Tensor& output,
                                                        const Tensors& input_list,
                                                        const ReduceOp& op, bool async_op,
                                                        const ReduceScatterOptions& options) {
  return start({OpName::reduce_scatter, TORCHCOMMS_REDUCE_SCATTER, 0, 0, &op}, input_list, {output},
               async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::reduce_scatter_v(at::Tensor& output,
                                                          const Tensors& input_list,
                                                          const ReduceOp& op, bool async_op,
                                                          const ReduceScatterOptions& options) {
  return start({OpName::reduce_scatter_v, TORCHCOMMS_REDUCE_SCATTER, 0, 0, &op}, input_list,
               {output}, async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::reduce_scatter_single(
    at::Tensor& output, const at::Tensor& input, const ReduceOp& op, bool async_op,
    const ReduceScatterSingleOptions& options) {
  return start({OpName::reduce_scatter_single, TORCHCOMMS_REDUCE_SCATTER, 0, 0, &op},
               equalParts(input, getSize()), {output}, async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::all_to_all_single(at::Tensor& output,
                                                           const at::Tensor& input, bool async_op,
                                                           const AllToAllSingleOptions& options) {
  return start({OpName::all_to_all_single, TORCHCOMMS_ALL_TO_ALL}, equalParts(input, getSize()),
               equalParts(output, getSize()), async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::all_to_all_v_single(
    at::Tensor& output, const at::Tensor& input, const std::vector<uint64_t>& output_split_sizes,
    const std::vector<uint64_t>& input_split_sizes, bool async_op,
    const AllToAllvSingleOptions& options) {
  return start({OpName::all_to_all_v_single, TORCHCOMMS_ALL_TO_ALL},
               rowParts(input, input_split_sizes), rowParts(output, output_split_sizes), async_op,
               options);
}

TorchCommBackend::WorkPtr PluginBackend::all_to_all(const Tensors& output_tensor_list,
                                                    const Tensors& input_tensor_list, bool async_op,
                                                    const AllToAllOptions& options) {
  return start({OpName::all_to_all, TORCHCOMMS_ALL_TO_ALL}, input_tensor_list, output_tensor_list,
               async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::barrier(bool async_op, const BarrierOptions& options) {
  return start({OpName::barrier, TORCHCOMMS_BARRIER}, {}, {}, async_op, options);
}

TorchCommBackend::WorkPtr PluginBackend::scatter(at::Tensor& output_tensor,
                                                 const Tensors& input_tensor_list, int root,
                                                 bool async_op, const ScatterOptions& options) {
  return start({OpName::scatter, TORCHCOMMS_SCATTER, root},
               getRank() == root ? input_tensor_list : Tensors(), {output_tensor}, async_op,
               options);
}

TorchCommBackend::WorkPtr PluginBackend::gather(const Tensors& output_tensor_list,
                                                const at::Tensor& input_tensor, int root,
                                                bool async_op, const GatherOptions& options) {
  return start({OpName::gather, TORCHCOMMS_GATHER, root}, {input_tensor},
               getRank() == root ? output_tensor_list : Tensors(), async_op, options);
}

std::shared_ptr<TorchCommBackend> PluginBackend::split(const std::vector<int>& ranks,
                                                       const std::string& name,
                                                       const CommOptions& options) {
  require(OpName::split);
  // Counted on every rank, member or not, so that all agree on the key.
  const uint64_t number = splits_++;
  if (ranks.empty()) return nullptr;
  CommOptions child = options;
  child.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), getRank()) - ranks.begin());
  child.size = static_cast<int>(ranks.size());
  if (options_.store) {
    child.store = c10::make_intrusive<c10d::PrefixStore>(
        "split/" + std::to_string(number) + "/" +
            std::to_string(*std::min_element(ranks.begin(), ranks.end())),
        options_.store);
  }
  auto made = std::make_shared<PluginBackend>(backendName_, plugin_);
  made->init(device_, name, child);
  return made;
}

}  // namespace torch::comms
