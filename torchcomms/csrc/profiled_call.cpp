#include "torchcomms/csrc/profiled_call.hpp"

#include <torch/csrc/profiler/stubs/base.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <numeric>

#include "ctran/base/config.h"
#include "ctran/base/json.h"
#include "ctran/base/log.h"
#include "ctran/capi/select.h"

namespace torch::comms {

namespace {

const ctran::ConfigBool kNvtx{
    "TORCHCOMMS_NVTX", false,
    "Whether each call is an NVTX range, named with its bytes and algorithm. Needs a torch with "
    "CUDA."};

constexpr size_t kMostTensors = 64;       // of a call, that are told of
constexpr size_t kMostAlgorithms = 4096;  // that are remembered

int64_t elementsOf(const std::vector<at::Tensor>& tensors) {
  return std::transform_reduce(tensors.begin(), tensors.end(), int64_t{0}, std::plus<>(),
                               [](const at::Tensor& tensor) { return tensor.numel(); });
}

/// Those of which a call is told: what the rank contributes, else what it gets.
const std::vector<at::Tensor>& tensorsOf(const OperationView& view) {
  return view.inputs.empty() ? view.outputs : view.inputs;
}

int64_t bytesOf(const OperationView& view) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensorsOf(view)) {
    bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  }
  return bytes;
}

std::string nameOf(c10::ScalarType type) {
  // As ctran calls them; of all others only the size counts.
  switch (type) {
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kFloat8_e4m3fn:
      return "float8_e4m3fn";
    case at::kFloat8_e5m2:
      return "float8_e5m2";
    default:
      return {};
  }
}

/// As `comm.explain` calls the operation: forms that differ in their tensors alone are one.
std::string collectiveOf(OpName op) {
  std::string name(toString(op));
  constexpr std::string_view kSingle = "_single";
  if (name.ends_with(kSingle)) name.resize(name.size() - kSingle.size());
  return name;
}

std::string explained(const TorchCommBackend& backend, OpName op, int64_t bytes,
                      const OperationView& view) {
  using ctran::Json;
  Json request = Json::object();
  request.set("do", Json("explain")).set("collective", Json(collectiveOf(op)));
  request.set("bytes", Json(bytes));
  request.set("communicator", Json(std::string(backend.getCommName())));
  request.set("token", Json(static_cast<int64_t>(backend.engineToken())));
  const auto& tensors = tensorsOf(view);
  if (const std::string type = tensors.empty() ? "" : nameOf(tensors[0].scalar_type());
      !type.empty()) {
    request.set("type", Json(type));
  }
  const std::unique_ptr<char, void (*)(char*)> text(
      ctran_select_call(request.print().c_str(), nullptr), ctran_select_free);
  const Json answer = Json::parse(text.get(), "the answer");
  const Json* ok = answer.find("ok");
  return ok == nullptr ? std::string() : ok->at("algorithm").asString();
}

/// What would serve the call; empty where the backend does not tell. Asked once for each size.
std::string algorithmOf(const TorchCommBackend& backend, OpName op, int64_t bytes,
                        const OperationView& view) {
  const std::string_view name = backend.getBackendName();
  if (name != "ctran" && name != "ncclx") return {};
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  const auto& tensors = tensorsOf(view);
  const std::string key = std::to_string(backend.engineToken()) + ' ' + std::string(toString(op)) +
                          ' ' + std::to_string(bytes) + ' ' +
                          (tensors.empty() ? "" : nameOf(tensors[0].scalar_type()));
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  std::string algorithm;
  try {
    algorithm = explained(backend, op, bytes, view);
  } catch (const std::exception&) {  // of an operation that is not chosen
  }
  if (known.size() >= kMostAlgorithms) known.clear();
  return known.emplace(key, algorithm).first->second;
}

const profiler::impl::ProfilerStubs& ranges() { return *profiler::impl::cudaStubs(); }

bool canRange() {
  if (!kNvtx.get()) return false;
  if (ranges().enabled()) return true;
  ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Warn,
             "TORCHCOMMS_NVTX is set, but this torch has no NVTX: it is built without CUDA, or "
             "there is none here");
  return false;
}

}  // namespace

bool ProfiledCall::isRange() {
  static const bool is = canRange();
  return is;
}

ProfiledCall::ProfiledCall(const TorchCommBackend& backend, OpName op, const OperationView& view)
    : name_(std::string(backend.getBackendName()) + ":" + std::string(toString(op))) {
  const int64_t bytes = bytesOf(view);
  const std::string algorithm = algorithmOf(backend, op, bytes, view);
  if (isRange()) {
    std::string text = name_ + " bytes=" + std::to_string(bytes);
    if (!algorithm.empty()) text += " algorithm=" + algorithm;
    ranges().rangePush(text.c_str());
  }
  if (at::hasCallbacks()) record(backend, op, view, bytes, algorithm);
}

ProfiledCall::~ProfiledCall() {
  standard_.reset();
  parameters_.reset();
  event_.reset();
  if (isRange()) ranges().rangePop();
}

void ProfiledCall::record(const TorchCommBackend& backend, OpName op, const OperationView& view,
                          int64_t bytes, const std::string& algorithm) {
  std::vector<c10::IValue> inputs;
  for (const at::Tensor& tensor : view.inputs) {
    if (inputs.size() == kMostTensors) break;
    inputs.emplace_back(tensor);
  }
  std::unordered_map<std::string, c10::IValue> more{
      {"bytes", bytes}, {"communicator", std::string(backend.getCommName())}};
  if (!algorithm.empty()) more.emplace("algorithm", algorithm);
  if (view.root) more.emplace("root", int64_t{*view.root});
  if (view.peer) more.emplace("peer", int64_t{*view.peer});
  event_.emplace(at::RecordScope::FUNCTION);
  event_->before(std::string_view(name_), &inputs, &more);

  const auto& typed = tensorsOf(view);
  parameters_.emplace(
      c10::DebugInfoKind::PARAM_COMMS_INFO,
      std::make_shared<ParamCommsDebugInfo>(
          std::tuple(std::string(backend.getCommName()), std::string(backend.getBackendName())),
          backend.getRank(), std::string(toString(op)), elementsOf(view.inputs),
          elementsOf(view.outputs), typed.empty() ? at::kByte : typed[0].scalar_type(),
          std::vector<int64_t>(), std::vector<int64_t>(), 0, 1, backend.getSize()));
  standard_.emplace(at::RecordScope::FUNCTION);
  standard_->before(std::string_view(at::kParamCommsCallName), &inputs);
}

}  // namespace torch::comms
