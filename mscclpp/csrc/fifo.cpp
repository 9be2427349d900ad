#include "mscclpp/fifo.hpp"

#include "mscclpp/env.hpp"
#include "mscclpp/gpu_utils.hpp"

namespace mscclpp {

struct Fifo::State {
  explicit State(int places)
      : size(places),
        slots(gpuCallocShared<FifoSlot>(static_cast<size_t>(places))),
        head(gpuCallocShared<uint64_t>()),
        tail(gpuCallocShared<uint64_t>()),
        limit(gpuCallocShared<WaitLimit>()) {
    limit[0] = WaitLimit();
    limit[0].timeoutNanos = int64_t{env()->timeoutSeconds} * 1'000'000'000;
  }

  const int size;
  const std::shared_ptr<FifoSlot[]> slots;
  const std::shared_ptr<uint64_t[]> head;
  const std::shared_ptr<uint64_t[]> tail;
  const std::shared_ptr<WaitLimit[]> limit;
};

Fifo::Fifo(int size) {
  if (size <= 0) throw Error("a FIFO needs at least one place", ErrorCode::InvalidUsage);
  state_ = std::make_shared<State>(size);
}

int Fifo::size() const { return state_->size; }

bool Fifo::poll(ProxyTrigger& trigger) const {
  const uint64_t handled = *state_->tail.get();  // only this side writes it
  const FifoSlot& slot = state_->slots[handled % static_cast<uint64_t>(state_->size)];
  if (loadAcquireSystem(&slot.number) != handled + 1) return false;
  trigger = slot.trigger;
  return true;
}

void Fifo::pop() { storeReleaseSystem(state_->tail.get(), *state_->tail.get() + 1); }

Fifo::DeviceHandle Fifo::deviceHandle() const {
  return {state_->slots.get(), state_->head.get(), state_->tail.get(), state_->size, limit()};
}

WaitLimit* Fifo::limit() const { return state_->limit.get(); }

}  // namespace mscclpp
