#include "mscclpp/fifo.hpp"

#include "ctran/gpu.h"
#include "engine_errors.h"
#include "lines.h"
#include "wait_limits.h"

namespace mscclpp {

struct Fifo::State {
  State(int places, DeviceType kernels) : size(places), limit(newLimit(kernels)) {
    limit->peer = kProxy;
    const bool onGpu = kernels == DeviceType::GPU;
    const size_t bytes = static_cast<size_t>(places) * sizeof(FifoSlot);
    // The host polls the slots, kernels the tail; the head is of kernels alone.
    const LineKind both = onGpu ? LineKind::ForGpus : LineKind::Shared;
    slots = std::static_pointer_cast<FifoSlot>(allocateLines(both, bytes));
    tail = allocateLine<uint64_t>(both);
    head = onGpu ? allocateLine<uint64_t>(LineKind::OnGpu, ctran::api::currentGpu().value_or(0))
                 : allocateLine<uint64_t>(LineKind::Shared);
  }

  const int size;
  const std::shared_ptr<WaitLimit> limit;
  std::shared_ptr<FifoSlot> slots;
  std::shared_ptr<uint64_t> head;
  std::shared_ptr<uint64_t> tail;
};

Fifo::Fifo(int size, DeviceType kernels) {
  if (size <= 0) throw Error("a FIFO needs at least one place", ErrorCode::InvalidUsage);
  state_ = translated([&] { return std::make_shared<State>(size, kernels); });
}

int Fifo::size() const { return state_->size; }

bool Fifo::poll(ProxyTrigger& trigger) const {
  const uint64_t handled = *state_->tail.get();  // only this side writes it
  const FifoSlot& slot = state_->slots.get()[handled % static_cast<uint64_t>(state_->size)];
  if (loadAcquireSystem(&slot.number) != handled + 1) return false;
  trigger = slot.trigger;
  return true;
}

void Fifo::pop() {
  ProxyTrigger oldest;
  if (!poll(oldest)) throw Error("there is no request to pop", ErrorCode::InvalidUsage);
  storeReleaseSystem(state_->tail.get(), *state_->tail.get() + 1);
}

Fifo::DeviceHandle Fifo::deviceHandle() const {
  return {state_->slots.get(), state_->head.get(), state_->tail.get(), state_->size, limit().get()};
}

std::shared_ptr<WaitLimit> Fifo::limit() const { return state_->limit; }

}  // namespace mscclpp
