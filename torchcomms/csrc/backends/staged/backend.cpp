#include "torchcomms/csrc/backends/staged/backend.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/staged/work.hpp"
#include "torchcomms/csrc/current_stream.hpp"

namespace torch::comms {

namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor toHost(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  return tensor.to(at::kCPU);
}

/// Returns whether an operation reads what it writes, or leaves some of it as it was.
bool readsOutputs(const Call& call, int rank) {
  switch (call.op) {
    case OpName::all_reduce:
    case OpName::reduce:
    case OpName::all_to_all_v_single:
      return true;
    case OpName::broadcast:
      return rank == call.root;
    default:
      return false;
  }
}

bool exists(c10::DeviceType type) {
  return type != c10::DeviceType::Meta && c10::impl::hasDeviceGuardImpl(type) &&
         c10::impl::getDeviceGuardImpl(type)->deviceCount() > 0;
}

}  // namespace

void StagedBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  if (!device.is_cpu() && !exists(device.type())) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "Backend " + std::string(getBackendName()) + " has no support for device '" +
                           device.str() +
                           "'; it works on tensors of the CPU, and through host memory on those of "
                           "devices that this torch has",
                       {}, {}, "pass torch.device(\"cpu\")");
  }
  device_ = stream::chooseDevice(device, options.rank.value());
  CommOptions members = options;
  if (options.enable_reconfigure) {  // they are not known yet
    members.rank = 0;
    members.size = 1;
  }
  inner().init(at::kCPU, name, members);
  formed_ = !options.enable_reconfigure;
}

Candidates& StagedBackend::candidates() const {
  if (!candidates_) {
    candidates_ = std::make_unique<Candidates>(std::string(getBackendName()),
                                               std::string(getCommName()), getOptions().timeout);
  }
  return *candidates_;
}

std::string StagedBackend::getInitHandle() const {
  return getOptions().enable_reconfigure ? candidates().handle() : inner().getInitHandle();
}

void StagedBackend::reconfigure(const ReconfigureOptions& options) {
  const std::chrono::milliseconds usual = getOptions().timeout;
  const CommOptions members = candidates().meet(options, getOptions());
  auto formed = make_();
  formed->init(at::kCPU, std::string(getCommName()), members);
  formed->setTimeout(usual);
  // What is in flight among the members so far ends without surprise.
  inner().setFailureListener(nullptr);
  const auto before = inner_.replace(std::move(formed));
  formed_ = true;
}

bool StagedBackend::direct(OpName op) const {
  if (!formed_) {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "Communicator '" + std::string(getCommName()) + "' has no members yet", {},
                       std::string(toString(op)),
                       "made with enable_reconfigure=True, it needs a call of reconfigure() first");
  }
  if (device_.is_cpu()) return true;
  if (stream::isCapturing(device_)) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       std::string(toString(op)) + " of backend " + std::string(getBackendName()) +
                           " goes through host memory, of which a graph's replays know nothing",
                       {}, std::string(toString(op)),
                       "leave it out of the capture, or use backend ctran or nccl");
  }
  return false;
}

TorchCommBackend::WorkPtr StagedBackend::issue(const Call& call) {
  if (direct(call.op)) return inner().issue(call);
  Tensors outputs(call.outputs.begin(), call.outputs.end());
  for (const P2POp& one : call.batch) {
    if (one.type == P2POp::Type::RECV) outputs.push_back(one.tensor);
  }
  const c10::DeviceGuard guard(device_);
  std::shared_ptr<staged::Results> results;
  if (!outputs.empty()) {
    results = std::make_shared<staged::Results>(device_, outputs, readsOutputs(call, getRank()));
  }
  const Tensors written = results ? results->host() : Tensors();
  // The only ones by their nature; others may be by the caller's choice, whose input is a copy.
  const bool inPlace = call.op == OpName::all_reduce || call.op == OpName::reduce;
  Tensors read;
  for (const at::Tensor& input : call.inputs) {
    read.push_back(inPlace && results ? written[0] : toHost(input));
  }
  std::vector<P2POp> batch(call.batch.begin(), call.batch.end());
  auto received = written.begin();
  for (P2POp& one : batch) {
    one.tensor = one.type == P2POp::Type::RECV ? *received++ : toHost(one.tensor);
  }
  Call onHost = call;
  onHost.inputs = read;
  onHost.batch = batch;
  if (call.batch.empty()) onHost.outputs = written;
  WorkPtr work = inner().issue(onHost);
  if (!results) return work;
  if (call.async) {
    return c10::make_intrusive<staged::StagedWork>(std::move(work), std::move(results));
  }
  const HostWait wait;
  results->copyNow();
  return work;
}

std::shared_ptr<TorchCommBackend> StagedBackend::split(const std::vector<int>& ranks,
                                                       const std::string& name,
                                                       const CommOptions& options) {
  static_cast<void>(direct(OpName::split));
  std::shared_ptr<C10dBackend> part = inner().part(ranks, name, options);
  if (!part) return nullptr;
  auto child = std::make_shared<StagedBackend>(make_, std::move(part));
  child->device_ = device_;
  child->formed_ = true;
  return child;
}

}  // namespace torch::comms
