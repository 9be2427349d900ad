#include <comms/torchcomms/transport/RdmaTransport.h>

#include <algorithm>

#include "torchcomms/csrc/longest_timeout.hpp"
#include "torchcomms/csrc/transport/rdma_state.hpp"

namespace torch::comms {

namespace {

commResult_t resultOf(const ctran::Error& error) {
  switch (error.kind()) {
    case ctran::ErrorKind::InvalidArgument:
    case ctran::ErrorKind::Mismatch:
      return commInvalidArgument;
    case ctran::ErrorKind::PeerLost:
      return commRemoteError;
    case ctran::ErrorKind::Timeout:
      return commTimeout;
    case ctran::ErrorKind::Aborted:
      return commAborted;
    case ctran::ErrorKind::Unsupported:
    case ctran::ErrorKind::System:
      return commSystemError;
  }
  return commInternalError;
}

commResult_t resultOf(const ctran::RdmaOutcome& outcome) {
  return outcome ? resultOf(*outcome) : commSuccess;
}

/// The future of a call; one that has failed if the call was refused.
template <typename Call>
std::shared_ptr<const detail::RdmaFutureState> futureOf(const Call& call) {
  auto state = std::make_shared<detail::RdmaFutureState>();
  try {
    state->future = call();
  } catch (const ctran::Error& error) {
    state->future.finish(error);
  }
  return state;
}

uintptr_t numberOf(const void* address) { return reinterpret_cast<uintptr_t>(address); }

ctran::RdmaRemote remoteOf(const RdmaRemoteBuffer& buffer) {
  return {reinterpret_cast<uint64_t>(buffer.ptr), buffer.len, buffer.accessKey};
}

}  // namespace

bool RdmaFuture::isReady() const { return state_->future.isReady(); }
bool RdmaFuture::wait(std::chrono::nanoseconds timeout) const {
  return state_->future.waitFor(timeout);
}
commResult_t RdmaFuture::get() const { return resultOf(state_->future.outcome()); }

std::string RdmaFuture::error() const {
  const ctran::RdmaOutcome outcome = state_->future.outcome();
  return outcome ? outcome->what() : "";
}

void RdmaFuture::onReady(std::function<void(commResult_t)> function) const {
  state_->future.onReady([function = std::move(function)](const ctran::RdmaOutcome& outcome) {
    function(resultOf(outcome));
  });
}

std::vector<commResult_t> RdmaFutures::get() const {
  std::vector<commResult_t> results;
  for (const RdmaFuture& each : futures_) results.push_back(each.get());
  return results;
}

ScopedEventBaseThread::ScopedEventBaseThread()
    : base_(std::make_shared<detail::EventBaseState>(
          detail::EventBaseState{std::make_shared<ctran::RdmaLoop>()})) {}

RdmaMemory::View::View(const RdmaMemory& memory, uintptr_t data, size_t size)
    : state_(memory.state_), data_(reinterpret_cast<void*>(data)), size_(size) {
  ctran::spanOf(state_->extent, data_, size);
}

RdmaMemory::RdmaMemory(const void* buf, size_t len, int cudaDev, bool cacheReg,
                       std::shared_ptr<void> owner)
    : state_(std::make_shared<detail::RdmaMemoryState>(const_cast<void*>(buf), len, cudaDev,
                                                       std::move(owner), cacheReg)),
      reused_(state_->extent.isReused()) {}

RdmaMemory::~RdmaMemory() {
  // The loop's own thread would wait for itself.
  if (state_ && !state_->isOwned && !ctran::RdmaLoop::isThisThread()) {
    state_->extent.registration()->waitUntilUnused();
  }
}

RdmaMemory::View RdmaMemory::createView(size_t offset, size_t length) const {
  return {*this, numberOf(data()) + offset, length};
}
RdmaMemory::View RdmaMemory::createView(const void* ptr, size_t length) const {
  return {*this, numberOf(ptr), length};
}
RdmaMemory::MutableView RdmaMemory::createMutableView(size_t offset, size_t length) {
  return {*this, numberOf(data()) + offset, length};
}
RdmaMemory::MutableView RdmaMemory::createMutableView(void* ptr, size_t length) {
  return {*this, numberOf(ptr), length};
}

bool RdmaMemory::contains(const void* ptr, size_t len) const {
  return state_->extent.contains(ptr, len);
}
const void* RdmaMemory::data() const { return state_->extent.address(); }
size_t RdmaMemory::length() const { return state_->extent.bytes(); }
int RdmaMemory::getDevice() const { return state_->extent.registration()->gpu(); }
void* RdmaMemory::localKey() const { return state_->extent.registration().get(); }
std::string RdmaMemory::remoteKey() const { return state_->extent.key().text(); }

bool RdmaTransport::supported() { return ctran::RdmaTransport::supported(); }

RdmaTransport::RdmaTransport(int cudaDev, EventBase* evb, std::chrono::milliseconds timeout)
    : state_(new detail::RdmaTransportState{
          cudaDev, ctran::RdmaTransport(ctran::RdmaOptions{evb ? evb->state_->loop : nullptr,
                                                           std::min(timeout, kLongestTimeout),
                                                           {},
                                                           cudaDev})}) {}
RdmaTransport::~RdmaTransport() = default;

std::string RdmaTransport::bind() { return state_->transport.bind(); }

commResult_t RdmaTransport::connect(const std::string& peerUrl, std::string* why) {
  try {
    state_->transport.connect(peerUrl);
    return commSuccess;
  } catch (const ctran::Error& error) {
    if (why) *why = error.what();
    return resultOf(error);
  }
}

bool RdmaTransport::connected() const { return state_->transport.connected(); }

RdmaFuture RdmaTransport::write(const RdmaMemory::View& localBuffer,
                                const RdmaRemoteBuffer& remoteBuffer, bool notify) {
  RdmaFuture future;
  future.state_ = futureOf([&] {
    return state_->transport.write(
        {localBuffer.state_->extent.registration(), localBuffer.data_, localBuffer.size_},
        remoteOf(remoteBuffer), notify);
  });
  return future;
}

RdmaFuture RdmaTransport::read(const RdmaMemory::MutableView& localBuffer,
                               const RdmaRemoteBuffer& remoteBuffer) {
  RdmaFuture future;
  future.state_ = futureOf([&] {
    return state_->transport.read(
        {localBuffer.state_->extent.registration(), localBuffer.data_, localBuffer.size_},
        remoteOf(remoteBuffer));
  });
  return future;
}

RdmaFuture RdmaTransport::waitForWrite() {
  RdmaFuture future;
  future.state_ = futureOf([&] { return state_->transport.waitForWrite(); });
  return future;
}

}  // namespace torch::comms
