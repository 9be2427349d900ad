// The life of an NcclBackend. What it asks of the library is in collectives.cpp and exchanges.cpp.

#include "torchcomms/csrc/backends/nccl/backend.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "ctran/stream/watchdog.h"
#include "torchcomms/csrc/backends/ctran/store.hpp"
#include "torchcomms/csrc/backends/rendezvous.hpp"
#include "torchcomms/csrc/current_stream.hpp"

namespace torch::comms {

namespace {

using ctran::ErrorKind;
using nccl::Clock;

constexpr const char* kIdKey = "unique id";

/// Made by rank 0, through the store of this communicator alone.
nccl::UniqueId agreeOnId(const nccl::Library& library, const c10::intrusive_ptr<c10d::Store>& store,
                         int rank, std::chrono::milliseconds timeout) {
  nccl::UniqueId id{};
  C10dStore keys(store);
  if (rank == 0) {
    if (library.getUniqueId(&id) != nccl::Result::Success) {
      throw ctran::Error(ErrorKind::System,
                         std::string("ncclGetUniqueId: ") + library.getLastError(nullptr), {}, {},
                         "is a network interface up? NCCL_SOCKET_IFNAME names the one to use");
    }
    keys.set(kIdKey, std::string(id.bytes, sizeof(id.bytes)));
    return id;
  }
  const std::string text = keys.get(kIdKey, timeout);
  if (text.size() != sizeof(id.bytes)) {
    throw ctran::Error(ErrorKind::System, "The store's '" + std::string(kIdKey) + "' is damaged");
  }
  std::copy(text.begin(), text.end(), id.bytes);
  return id;
}

/// Returns whether there is a stand-in for a driver, whose streams are of the CPU. AMD's comes with
/// NVIDIA's, of which there may be none.
bool hasHostStreams(ctran::gpu::Platform platform) {
  try {
    return ctran::gpu::Driver::get().currentHostStream != nullptr;
  } catch (const ctran::Error&) {
    if (platform == ctran::gpu::Platform::Cuda) throw;
    return false;
  }
}

}  // namespace

NcclBackend::~NcclBackend() {
  if (!*group_) return;
  group().close("has gone on rank " + std::to_string(group().rank()) + " without finalize()");
}

nccl::Group& NcclBackend::group() const {
  if (*group_) [[likely]]
    return **group_;
  throw ctran::Error(ErrorKind::InvalidArgument,
                     "Communicator '" + options_.name + "' has no members yet", {}, {},
                     "made with enable_reconfigure=True, it needs a call of reconfigure() first");
}

std::string_view NcclBackend::getBackendName() const { return vendor_.backend; }

nccl::GroupSetup NcclBackend::setup(const CommOptions& options,
                                    std::shared_ptr<nccl::OutOfBand> outOfBand) const {
  const int rank = options.rank.value();
  const int size = options.size.value();
  nccl::Hints hints = nccl::parseHints(options.hints, *library_);
  const bool highPriority = hints.highPriority || options.is_high_priority_stream;
  return {*library_,
          ctran::gpu::Runtime::of(vendor_.platform),
          device_,
          options.name,
          rank,
          size,
          std::move(hints),
          highPriority,
          std::make_shared<ErrorMonitor>("rank " + std::to_string(rank) + " of communicator '" +
                                             options.name + "' (" + vendor_.backend + ")",
                                         options.abort_process_on_timeout_or_error),
          std::move(outOfBand)};
}

void NcclBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  library_ = &nccl::Library::of(vendor_);
  version_ = library_->versionText();
  if (!device.is_cuda() && !(device.is_cpu() && hasHostStreams(vendor_.platform))) {
    throw ctran::Error(ErrorKind::Unsupported,
                       std::string("Backend ") + vendor_.backend + " has no support for device '" +
                           device.str() + "'; it works on tensors of GPUs",
                       {}, {}, "pass torch.device(\"cuda\"), or use backend ctran");
  }
  CommOptions made = options;
  made.name = std::string(name);
  device_ = device;
  if (!made.enable_reconfigure) return form(std::move(made), options.timeout);
  options_ = std::move(made);  // its members are not known yet
}

void NcclBackend::form(CommOptions made, std::chrono::milliseconds usual) {
  const at::Device device = stream::chooseDevice(device_, made.rank.value());
  const Clock::time_point deadline = Clock::now() + made.timeout;
  c10::intrusive_ptr<c10d::Store> store;
  nccl::UniqueId id{};
  if (made.size == 1) {
    id = agreeOnId(*library_, c10::make_intrusive<c10d::HashStore>(), 0, made.timeout);
  } else if (made.store) {
    store = meet(made.store, std::string(vendor_.backend) + "/" + made.name, made.rank.value(),
                 made.size.value(), made.timeout);
    id = agreeOnId(*library_, store, made.rank.value(), made.timeout);
  } else {
    throw ctran::Error(ErrorKind::InvalidArgument,
                       "A communicator of " + std::to_string(made.size.value()) +
                           " ranks needs a store through which they find each other",
                       {}, {}, "set CommOptions::store, to a TCPStore for instance");
  }
  auto outOfBand =
      store ? nccl::OutOfBand::open(store, made.rank.value(), made.size.value()) : nullptr;
  device_ = device;
  auto group = std::make_shared<nccl::Group>(setup(made, std::move(outOfBand)));
  group->create(id, deadline, made.timeout);
  made.timeout = usual;
  adopt(std::move(group), made);
}

void NcclBackend::adopt(std::shared_ptr<nccl::Group> group, const CommOptions& options) {
  options_ = options;
  const auto before = group_.replace(group);
  if (before) {  // what is in flight there fails without surprise
    before->setup().monitor->listen(nullptr);
    before->close("has other members: reconfigure() has changed them");
    registered_.clear();
    splits_ = windows_ = 0;
  }
  barrierWord_ = at::zeros({1}, at::TensorOptions(device_).dtype(at::kFloat));
  ctran::Watchdog::add(group);
  if (const auto& outOfBand = group->setup().outOfBand) outOfBand->meetPeers();
}

Candidates& NcclBackend::candidates() const {
  if (!candidates_) {
    candidates_ = std::make_unique<Candidates>(vendor_.backend, options_.name, options_.timeout);
  }
  return *candidates_;
}

std::string NcclBackend::getInitHandle() const {
  return options_.enable_reconfigure ? candidates().handle() : TorchCommBackend::getInitHandle();
}

void NcclBackend::reconfigure(const ReconfigureOptions& options) {
  form(candidates().meet(options, options_), options_.timeout);
}

void NcclBackend::setHints(const Hints& hints) {
  static_cast<void>(nccl::parseHints(hints, *library_));  // throws for a value without sense
  options_.hints = hints;
}

void NcclBackend::finalize() {
  if (!*group_) return;
  group().finalize(Clock::now() + options_.timeout, options_.timeout);
  barrierWord_.reset();
}

std::shared_ptr<NcclBackend> NcclBackend::part(const std::vector<int>& ranks,
                                               const std::string& name,
                                               const CommOptions& options) {
  nccl::Group& whole = group();
  whole.throwIfBroken();
  const Clock::time_point deadline = Clock::now() + options.timeout;
  // Counted on every rank, member or not, so that all agree on the key.
  const uint64_t number = splits_++;
  if (ranks.empty()) {
    nccl::Group::splitOff(whole, deadline, options.timeout);
    return nullptr;
  }
  const int color = *std::min_element(ranks.begin(), ranks.end());
  auto child = std::make_shared<NcclBackend>(vendor_);
  child->library_ = library_;
  child->version_ = version_;
  child->device_ = device_;
  CommOptions made = options;
  made.name = name;
  made.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), getRank()) - ranks.begin());
  made.size = static_cast<int>(ranks.size());
  std::shared_ptr<nccl::OutOfBand> outOfBand;
  if (const auto& all = whole.setup().outOfBand; all && ranks.size() > 1) {
    outOfBand = all->part("split/" + std::to_string(number) + "/" + std::to_string(color),
                          made.rank.value(), made.size.value());
  }
  auto group = std::make_shared<nccl::Group>(child->setup(made, std::move(outOfBand)));
  group->splitFrom(whole, color, made.rank.value(), deadline, options.timeout);
  child->adopt(std::move(group), made);
  return child;
}

void NcclBackend::tensorRegister(const at::Tensor& tensor) {
  library_->require(library_->commRegister, "tensor_register", 21900);
  if (tensor.nbytes() == 0) return;
  registered_[tensor.unsafeGetTensorImpl()] =
      group().registerMemory(tensor.mutable_data_ptr(), tensor.nbytes());
}

void NcclBackend::tensorDeregister(const at::Tensor& tensor) {
  const auto found = registered_.find(tensor.unsafeGetTensorImpl());
  if (found == registered_.end()) return;
  void* handle = found->second;
  registered_.erase(found);
  group().deregisterMemory(handle);
}

void NcclBackend::abort() {
  const auto group = group_.look([](const auto& one) { return one; });
  if (!group) return;
  group->observer().seen();
  if (group->isFinalized() && !group->hasGraphs()) return;  // the others go on without this rank
  group->abort();
  group->awaitEnd();
}

bool NcclBackend::isAborted() const {
  const auto group = group_.look([](const auto& one) { return one; });
  const bool broken = group && group->isBroken();
  if (broken) group->observer().seen();
  return broken;
}

}  // namespace torch::comms
