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

Tensors rowParts(const at::Tensor& tensor, std::span<const uint64_t> rows) {
  Tensors parts;
  int64_t start = 0;
  for (const uint64_t count : rows) {
    parts.push_back(tensor.narrow(0, start, static_cast<int64_t>(count)));
    start += static_cast<int64_t>(count);
  }
  return parts;
}

/// Copies as much of the plug-in's table as both sides know.
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

TorchCommBackend::WorkPtr PluginBackend::start(const Call& asked, torchcomms_kind kind,
                                               const Tensors& inputs, const Tensors& outputs) {
  require(asked.op);
  const std::vector<torchcomms_buffer> in = buffersOf(inputs);
  const std::vector<torchcomms_buffer> out = buffersOf(outputs);
  torchcomms_call call{};
  call.size = sizeof call;
  call.kind = kind;
  call.root = asked.root;
  call.tag = asked.tag;
  call.inputs = in.data();
  call.input_count = static_cast<uint32_t>(in.size());
  call.outputs = out.data();
  call.output_count = static_cast<uint32_t>(out.size());
  call.blocking = asked.async ? 0 : 1;
  call.deadline_ns = monotonicNanos() + std::chrono::nanoseconds(timeoutOf(asked.options)).count();
  if (asked.reduceOp != nullptr) {
    call.reduce_op = reduceOpOf(*asked.reduceOp);
    call.factor = asked.reduceOp->factorAsDouble();
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
        std::string(toString(asked.op)) + " on backend '" + backendName_ + "': " + error, {},
        std::string(toString(asked.op)));
  }
  Tensors held = inputs;
  held.insert(held.end(), outputs.begin(), outputs.end());
  auto operation = std::make_shared<PluginOperation>(plugin_, started, asked.op, options_.name,
                                                     call.deadline_ns, std::move(held));
  running_.erase(
      std::remove_if(running_.begin(), running_.end(),
                     [](const auto& one) { return one->status() != WorkStatus::INPROGRESS; }),
      running_.end());
  running_.push_back(operation);
  auto work = c10::make_intrusive<PluginWork>(std::move(operation));
  if (!asked.async) work->wait();
  return work;
}

TorchCommBackend::WorkPtr PluginBackend::issue(const Call& call) {
  const Tensors inputs(call.inputs.begin(), call.inputs.end());
  const Tensors outputs(call.outputs.begin(), call.outputs.end());
  const auto parts = [&](const Tensors& whole) {
    return whole.empty() ? whole : equalParts(whole[0], getSize());
  };
  switch (call.op) {
    case OpName::send:
      return start(call, TORCHCOMMS_SEND, inputs, {});
    case OpName::recv:
      if (call.root == kAnySource) unsupported(call);
      return start(call, TORCHCOMMS_RECV, {}, outputs);
    case OpName::batch_op_issue:
      return startBatch(call);
    case OpName::broadcast:
      return start(call, TORCHCOMMS_BROADCAST, {}, outputs);
    case OpName::all_reduce:
      return start(call, TORCHCOMMS_ALL_REDUCE, inputs, outputs);
    case OpName::reduce:
      return start(call, TORCHCOMMS_REDUCE, inputs, outputs);
    case OpName::all_gather:
    case OpName::all_gather_v:
      return start(call, TORCHCOMMS_ALL_GATHER, inputs, outputs);
    case OpName::all_gather_single:
      return start(call, TORCHCOMMS_ALL_GATHER, inputs, parts(outputs));
    case OpName::reduce_scatter:
    case OpName::reduce_scatter_v:
      return start(call, TORCHCOMMS_REDUCE_SCATTER, inputs, outputs);
    case OpName::reduce_scatter_single:
      return start(call, TORCHCOMMS_REDUCE_SCATTER, parts(inputs), outputs);
    case OpName::all_to_all:
      return start(call, TORCHCOMMS_ALL_TO_ALL, inputs, outputs);
    case OpName::all_to_all_single:
      return start(call, TORCHCOMMS_ALL_TO_ALL, parts(inputs), parts(outputs));
    case OpName::all_to_all_v_single:
      return start(call, TORCHCOMMS_ALL_TO_ALL, rowParts(inputs[0], call.inputRows),
                   rowParts(outputs[0], call.outputRows));
    case OpName::barrier:
      return start(call, TORCHCOMMS_BARRIER, {}, {});
    case OpName::scatter:
      return start(call, TORCHCOMMS_SCATTER, inputs, outputs);
    case OpName::gather:
      return start(call, TORCHCOMMS_GATHER, inputs, outputs);
    case OpName::gather_single:
      return start(call, TORCHCOMMS_GATHER, inputs, parts(outputs));
    default:
      unsupported(call);
  }
}

TorchCommBackend::WorkPtr PluginBackend::startBatch(const Call& call) {
  std::vector<WorkPtr> works;
  for (const P2POp& op : call.batch) {
    const Tensors tensors{op.tensor};
    const bool sends = op.type == P2POp::Type::SEND;
    Call one{sends ? OpName::send : OpName::recv, /*async=*/true, call.options};
    one.root = op.peer;
    one.tag = op.tag;
    (sends ? one.inputs : one.outputs) = tensors;
    works.push_back(issue(one));
  }
  WorkPtr all = CombinedWork::of(std::move(works));
  if (!call.async) all->wait();
  return all;
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
