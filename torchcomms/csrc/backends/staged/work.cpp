#include "torchcomms/csrc/backends/staged/work.hpp"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "ctran/base/log.h"
#include "ctran/gpu/runtime.h"
#include "torchcomms/csrc/backends/stream/waiting.hpp"
#include "torchcomms/csrc/current_stream.hpp"

namespace torch::comms::staged {

namespace {

using Clock = std::chrono::steady_clock;

const c10::impl::DeviceGuardImplInterface& guardOf(at::Device device) {
  return *c10::impl::getDeviceGuardImpl(device.type());
}

/// Calls of this thread do not spoil captures of others.
class BesideCaptures {
 public:
  explicit BesideCaptures(at::Device device) {
    if (const auto* runtime = stream::runtimeOf(device)) relaxed_.emplace(*runtime);
  }

 private:
  std::optional<ctran::gpu::RelaxedCapture> relaxed_;
};

}  // namespace

Results::Results(at::Device device, const Tensors& outputs, bool read)
    : device_(device), outputs_(outputs), issued_(device.type()), copied_(device.type()) {
  const HostWait wait;
  const BesideCaptures relaxed(device);
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  for (const at::Tensor& output : outputs) {
    // Page-locked memory goes to the device without the CPU.
    const auto options = output.options().device(at::kCPU).pinned_memory(device.is_cuda());
    host_.push_back(at::empty(output.sizes(), options));
    if (read) host_.back().copy_(output);
  }
  try {
    issued_.record(guardOf(device).getStream(device));
    stream_ = guardOf(device).getStreamFromGlobalPool(device);
  } catch (const c10::Error& error) {
    ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Debug,
               "%s has no streams to copy on: %s", device.str().c_str(),
               error.what_without_backtrace());
  }
}

void Results::copy(bool async) {
  const at::AutoDispatchBelowADInplaceOrView belowAutograd;
  for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i].copy_(host_[i], async);
}

void Results::copyNow() {
  const BesideCaptures relaxed(device_);
  copy(/*async=*/false);
}

void Results::begin() noexcept {
  std::call_once(once_, [this] {
    try {
      const BesideCaptures relaxed(device_);
      const c10::DeviceGuard device(device_);
      if (stream_) {
        const c10::StreamGuard stream(*stream_);
        issued_.block(*stream_);
        copy(/*async=*/true);
        for (const at::Tensor& output : outputs_) {
          guardOf(device_).recordDataPtrOnStream(output.storage().data_ptr(), *stream_);
        }
        copied_.record(*stream_);
      } else {
        copy(/*async=*/false);
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    hasBegun_ = true;
  });
}

bool Results::haveArrived() const {
  if (!hasBegun_) return false;
  if (error_ || !stream_) return true;
  const BesideCaptures relaxed(device_);
  try {
    return copied_.query();
  } catch (const c10::Error&) {  // the device is lost; who waits is told
    return true;
  }
}

void Results::follow() {
  if (error_) std::rethrow_exception(error_);
  if (stream_) copied_.block(guardOf(device_).getStream(device_));
}

void Results::whenArrived(TorchWork::Hook then) {
  stream::whenHolds([self = shared_from_this()] { return self->haveArrived(); }, std::move(then));
}

StagedWork::StagedWork(c10::intrusive_ptr<TorchWork> inner, std::shared_ptr<Results> results)
    : inner_(std::move(inner)), results_(std::move(results)) {
  // After a failure, too: what is lost then is not known here, and promised to nobody.
  inner_->setCallback([results = results_] { results->begin(); });
}

WorkStatus StagedWork::status() const {
  const WorkStatus inner = inner_->status();
  if (inner != WorkStatus::COMPLETED) return inner;
  if (results_->error()) return WorkStatus::ERROR;
  return results_->haveArrived() ? WorkStatus::COMPLETED : WorkStatus::INPROGRESS;
}

std::exception_ptr StagedWork::exception() const {
  if (auto error = inner_->exception()) return error;
  return results_->error();
}

void StagedWork::setCallback(Hook callback) {
  inner_->setCallback([results = results_, callback = std::move(callback)] {
    results->begin();
    results->whenArrived(callback);
  });
}

void StagedWork::setStartCallback(Hook callback) {
  inner_->registerWorkStartHook(std::move(callback));
}

bool StagedWork::doWait(std::optional<std::chrono::milliseconds> limit) {
  if (!limit) {
    inner_->wait();
  } else if (!inner_->wait(*limit)) {
    return false;
  }
  const HostWait wait;
  results_->begin();
  results_->follow();
  return true;
}

bool StagedWork::doWaitBlocking(std::optional<std::chrono::milliseconds> limit) {
  const auto begun = Clock::now();
  if (!doWait(limit)) return false;
  if (limit) {
    *limit -= std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
  }
  return stream::waitUntil([this] { return results_->haveArrived(); }, limit);
}

}  // namespace torch::comms::staged
