#pragma once

#include <c10/util/FunctionRef.h>

#include <memory>

#include "ctran/collective/collective.h"
#include "ctran/engine/gpu_queue.h"
#include "torchcomms/csrc/backends/call.hpp"
#include "torchcomms/csrc/error_monitor.hpp"

namespace torch::comms {

class CtranBackend;

/// The place of the tensors of a CtranBackend: what differs between the CPU and GPUs.
///
/// The backend owns it. `hold` makes the owner of the tensors of an operation until it has ended.
class CtranPlace {
 public:
  using WorkPtr = TorchCommBackend::WorkPtr;
  using Hold = c10::function_ref<std::shared_ptr<void>()>;

  virtual ~CtranPlace() = default;

  /// `factor` is set to what the reduction needs until it has ended, if anything.
  virtual ctran::ReduceOp reduceOpOf(const ReduceOp& op, at::Tensor& factor) const = 0;
  virtual WorkPtr execute(const Call& call, ctran::Collective&& collective, Hold hold) = 0;
  virtual WorkPtr exchangeRows(const Call& call, ctran::Collective&& collective) = 0;
  virtual WorkPtr receiveFromAny(const Call& call, ctran::Collective&& collective) = 0;
  virtual WorkPtr exchangeMessages(const Call& call) = 0;
  virtual WorkPtr reduceScatterQuantized(const Call& call, ctran::Collective&& collective) = 0;

  virtual std::shared_ptr<TorchCommWindow> newWindow() = 0;
  /// Registers memory for as long as the result is held.
  virtual std::shared_ptr<void> registerMemory(const at::Tensor& tensor) = 0;
  virtual std::shared_ptr<void> prepare(OpName op, const at::Tensor& output,
                                        std::chrono::milliseconds timeout) = 0;

  /// `finalized`: the communicator has been finalized.
  virtual void abort(bool finalized) = 0;
};

std::unique_ptr<CtranPlace> makePlaceOnCpu(CtranBackend& backend);
std::unique_ptr<CtranPlace> makePlaceOnGpus(CtranBackend& backend);
/// Gives a communicator of such a backend its GPUs. Collective.
void giveGpus(ctran::Communicator& engine, at::Device device, const CommOptions& options,
              const std::shared_ptr<ErrorMonitor>& monitor);

}  // namespace torch::comms
