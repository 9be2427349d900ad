#include "ctran/collective/exchange/peer_streams.h"

#include <utility>

namespace ctran {

PeerStreams::PeerStreams(uint32_t rank, uint32_t size, int device)
    : runtime_(gpu::Runtime::of(gpu::Platform::Cuda)),
      events_(std::make_shared<gpu::EventPool>(runtime_, device, size + 1)) {
  for (uint32_t r = 0; r < size; ++r) {
    Branch branch;
    if (r != rank) {
      branch.stream = std::make_unique<gpu::OwnStream>(runtime_, device, false);
      branch.end = gpu::PooledEvent(events_);
    }
    branches_.push_back(std::move(branch));
  }
}

void PeerStreams::fork(gpu::Stream stream) {
  const gpu::PooledEvent event(events_);
  runtime_.check(runtime_.eventRecord(event.get(), stream), "recording an event");
  for (const Branch& branch : branches_) {
    if (!branch.stream) continue;
    runtime_.check(runtime_.streamWaitEvent(branch.stream->get(), event.get(), 0),
                   "making a stream wait");
  }
}

void PeerStreams::join(gpu::Stream stream) {
  for (Branch& branch : branches_) {
    if (!branch.stream) continue;
    runtime_.check(runtime_.eventRecord(branch.end.get(), branch.stream->get()),
                   "recording an event");
    runtime_.check(runtime_.streamWaitEvent(stream, branch.end.get(), 0), "making a stream wait");
  }
}

void PeerStreams::follow(gpu::Stream later, gpu::Stream earlier) {
  const gpu::PooledEvent event(events_);
  runtime_.check(runtime_.eventRecord(event.get(), earlier), "recording an event");
  runtime_.check(runtime_.streamWaitEvent(later, event.get(), 0), "making a stream wait");
}

}  // namespace ctran
