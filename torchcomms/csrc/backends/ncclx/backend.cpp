// The life of an NcclxBackend. Its operations are in operations.cpp.

#include "torchcomms/csrc/backends/ncclx/backend.hpp"

#include <algorithm>
#include <comms/torchcomms/TorchCommFactory.hpp>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/engine/gpu_domain.h"
#include "torchcomms/csrc/backends/ctran/work.hpp"
#include "torchcomms/csrc/backends/nccl/hints.hpp"
#include "torchcomms/csrc/backends/nccl/vendors.hpp"

namespace torch::comms {

namespace {

using ctran::ErrorKind;

const BackendRegistration kNcclx("ncclx", [] { return std::make_shared<NcclxBackend>(); });

/// What a member is made with: each knows its own hints.
CommOptions optionsFor(const CommOptions& options, bool vendor, bool onCpu) {
  CommOptions made = options;
  std::erase_if(made.hints, [&](const auto& hint) {
    return hint.first.rfind("ncclx::", 0) == 0 || (vendor && hint.first.rfind("ctran::", 0) == 0);
  });
  made.is_high_priority_stream |= nccl::wantsHighPriority(options.hints);
  if (!vendor && onCpu) made.hints["ctran::stand_in"] = "1";
  return made;
}

/// Whether all ranks say so.
bool all(ctran::Communicator& comm, bool own) {
  EngineWaitHooks hooks;
  const HostWait wait;
  uint8_t everywhere = own ? 1 : 0;
  ctran::Collective c;
  c.kind = ctran::CollectiveKind::AllReduce;
  c.type = ctran::DataType::UInt8;
  c.op = {ctran::ReduceKind::Min};
  c.count = 1;
  c.input = c.output = reinterpret_cast<std::byte*>(&everywhere);
  comm.run(c, {}, &hooks);
  return everywhere != 0;
}

/// Lets `to` end as `from` has; the program sees the error there, or has it seen.
void spread(const std::weak_ptr<ctran::StreamQueue>& from,
            const std::weak_ptr<ctran::StreamQueue>& to) {
  const auto source = from.lock(), target = to.lock();
  if (!source || !target || target->isBroken()) return;
  const auto error = source->error();
  if (!error) return;
  target->observer().seen();
  target->breakWith(*error);
}

}  // namespace

NcclxBackend::~NcclxBackend() {
  // Each member leaves as it does alone: what the other one thinks of that is no failure.
  if (engine_) engine_->setFailureListener(nullptr);
  if (vendor_) vendor_->setFailureListener(nullptr);
}

void NcclxBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  const nccl::Vendor& vendor = nccl::vendorOf("ncclx");
  std::string noEngine, noVendor;
  try {
    nccl::Library::of(vendor);
  } catch (const ctran::Error& error) {
    noVendor = error.what();
  }
  auto engine = std::make_shared<CtranBackend>();
  try {
    CommOptions own = optionsFor(options, false, device.is_cpu());
    // NCCL knows better ways where GPUs do not reach each other.
    if (noVendor.empty()) own.hints["ctran::through_host"] = "0";
    engine->init(device, name, own);
  } catch (const ctran::Error& error) {
    // On all ranks alike: some GPU cannot take part.
    if (error.kind() != ErrorKind::Unsupported) throw;
    if (!noVendor.empty()) {
      throw ctran::Error(
          ErrorKind::Unsupported,
          "Backend ncclx has neither NCCL nor ctran: " + noVendor + "; " + error.what(),
          error.ranks());
    }
    noEngine = error.what();
  }
  if (noEngine.empty()) {
    engine_ = std::move(engine);
    if (!all(engine_->engine(), noVendor.empty()) && noVendor.empty()) {
      noVendor = "another rank has none";
    }
  }
  if (noVendor.empty()) noVendor = whyNoVendor();
  if (noVendor.empty()) {
    auto made = std::make_shared<NcclBackend>(vendor);
    made->init(device, name, optionsFor(options, true, device.is_cpu()));
    vendor_ = std::move(made);
  }
  CommOptions named = options;
  named.name = std::string(name);
  settle(named, noEngine, noVendor);
}

/// What NCCL would refuse, seen by all ranks alike; empty if nothing.
std::string NcclxBackend::whyNoVendor() const {
  if (!engine_) return {};
  const auto shared = engine_->gpu()->domain().sharedGpu();
  if (!shared) return {};
  return "ranks " + std::to_string(shared->first) + " and " + std::to_string(shared->second) +
         " share a GPU, which it refuses";
}

void NcclxBackend::settle(const CommOptions& options, std::string noEngine, std::string noVendor) {
  options_ = options;
  options_.rank = any().getRank();
  options_.size = any().getSize();
  device_ = any().getDevice();
  if (getRank() == 0 && engine_ && !vendor_) {
    ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Warn,
               "communicator '%s' of backend ncclx goes without NCCL: %s", options_.name.c_str(),
               noVendor.c_str());
  }
  const std::string machine = engine_ ? ctran::gpuMachine(engine_->gpu()->device()) : std::string();
  choice_ =
      std::make_shared<ncclx::Choice>(std::move(noEngine), std::move(noVendor), machine, getSize());
  choice_->prefer(options_.hints);
  if (engine_ && vendor_) chooseTable();
  token_ = engine_ ? engine_->engineToken() : ctran::newToken();
  if (engine_) choice_->explainBy(ctran::findExplainer(token_));
  ctran::announceExplainer(token_, choice_);
  connectFailures();
}

/// What was measured on machines like this, if all ranks find the same; else on H200.
void NcclxBackend::chooseTable() {
  const int size = getSize();
  const std::string machine = ctran::gpuMachine(engine_->gpu()->device());
  ctran::TuningTable own = ctran::TuningTable::load(size, machine);
  const uint64_t hash = own.hash();
  uint64_t range[2] = {hash, ~hash};  // the least of both tells whether all are the same
  ctran::Collective c;
  c.kind = ctran::CollectiveKind::AllReduce;
  c.type = ctran::DataType::UInt64;
  c.op = {ctran::ReduceKind::Min};
  c.count = 2;
  c.input = c.output = reinterpret_cast<std::byte*>(range);
  EngineWaitHooks hooks;
  {
    const HostWait wait;
    engine_->engine().run(c, {}, &hooks);
  }
  if (range[0] == ~range[1] && !own.entries.empty()) {
    return choice_->goBy(ctran::Members(std::move(own), "measured on machines like this"));
  }
  ctran::TuningTable table = ctran::measuredOnH200(size);
  const std::string origin = "measured among " + std::to_string(table.ranks) + " H200";
  choice_->goBy(ctran::Members(std::move(table), origin));
}

TorchCommBackend& NcclxBackend::any() const {
  if (engine_) return *engine_;
  if (vendor_) return *vendor_;
  throw ctran::Error(ErrorKind::InvalidArgument,
                     "Communicator '" + options_.name + "' has not been made");
}

std::string_view NcclxBackend::getBackendVersion() const {
  return vendor_ ? vendor_->getBackendVersion() : any().getBackendVersion();
}

void NcclxBackend::connectFailures() {
  const std::weak_ptr<ctran::StreamQueue> engine =
      engine_ ? std::weak_ptr<ctran::StreamQueue>(engine_->gpu()) : decltype(engine){};
  const std::weak_ptr<ctran::StreamQueue> vendor =
      vendor_ ? std::weak_ptr<ctran::StreamQueue>(vendor_->shareGroup()) : decltype(vendor){};
  const auto tell = [listener = listener_](auto from, auto to) {
    return [=](bool processEnds) {
      spread(from, to);
      if (listener) listener(processEnds);
    };
  };
  if (engine_) engine_->setFailureListener(tell(engine, vendor));
  if (vendor_) vendor_->setFailureListener(tell(vendor, engine));
}

void NcclxBackend::setHints(const Hints& hints) {
  choice_->prefer(hints);
  if (engine_) engine_->setHints(hints);
  options_.hints = hints;
}

void NcclxBackend::setFailureListener(std::function<void(bool)> listener) {
  listener_ = std::move(listener);
  connectFailures();
}

void NcclxBackend::finalize() {
  if (engine_) engine_->finalize();
  if (vendor_) vendor_->finalize();
}

std::shared_ptr<TorchCommBackend> NcclxBackend::split(const std::vector<int>& ranks,
                                                      const std::string& name,
                                                      const CommOptions& options) {
  auto child = std::make_shared<NcclxBackend>();
  const bool onCpu = getDevice().is_cpu();
  if (engine_) child->engine_ = engine_->part(ranks, name, optionsFor(options, false, onCpu));
  if (vendor_) child->vendor_ = vendor_->part(ranks, name, optionsFor(options, true, onCpu));
  if (ranks.empty()) return nullptr;
  CommOptions made = options;
  made.name = name;
  child->settle(made, choice_->noEngine(), choice_->noVendor());
  return child;
}

std::shared_ptr<TorchCommWindow> NcclxBackend::new_window() {
  return engine_ ? engine_->new_window() : vendor_->new_window();
}

void NcclxBackend::abort() {
  if (engine_) engine_->abort();
  if (vendor_) vendor_->abort();
}

bool NcclxBackend::isAborted() const {
  const bool engine = engine_ && engine_->isAborted();
  const bool vendor = vendor_ && vendor_->isAborted();
  return engine || vendor;
}

void NcclxBackend::setTimeout(std::chrono::milliseconds timeout) {
  if (engine_) engine_->setTimeout(timeout);
  if (vendor_) vendor_->setTimeout(timeout);
  options_.timeout = timeout;
}

void NcclxBackend::tensorRegister(const at::Tensor& tensor) {
  if (engine_) engine_->tensorRegister(tensor);
  if (vendor_) vendor_->tensorRegister(tensor);
}

/// What the engine has prepared, it carries out. The tables know nothing of that.
std::shared_ptr<void> NcclxBackend::prepare(OpName op, const at::Tensor& output,
                                            const OpOptions& options) {
  return engine_ && !choice_->isForced(true) ? engine_->prepare(op, output, options) : nullptr;
}

void NcclxBackend::tensorDeregister(const at::Tensor& tensor) {
  if (engine_) engine_->tensorDeregister(tensor);
  if (vendor_) vendor_->tensorDeregister(tensor);
}

}  // namespace torch::comms
