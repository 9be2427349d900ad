// C10dBackend where the works of the c10d backend are work on streams of a device.

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "ctran/base/error.h"
#include "torchcomms/csrc/backends/c10d/backend.hpp"
#include "torchcomms/csrc/backends/c10d/group.hpp"
#include "torchcomms/csrc/backends/stream/waiting.hpp"

namespace torch::comms {

bool C10dBackend::forgetEnded() {
  // What is on one stream ends in order, what is on another may end before.
  std::erase_if(onDevice_, [](const auto& operation) { return operation->hasEnded(); });
  return onDevice_.empty();
}

void C10dBackend::drainDevice() {
  if (stream::waitUntil([this] { return forgetEnded(); }, options_.timeout)) return;
  throw ctran::Error(ctran::ErrorKind::Timeout,
                     "finalize of communicator '" + group_->name + "' timed out after " +
                         std::to_string(options_.timeout.count()) +
                         " ms: the device has not done what it was asked for",
                     {}, std::string(toString(OpName::finalize)), "did every rank call it?");
}

TorchCommBackend::WorkPtr C10dBackend::executeOnStream(const Call& call, const Body& body) {
  group_->requireWhole(call.op);
  forgetEnded();
  const HostWait wait;  // the c10d backend may have to connect
  const c10::DeviceGuard guard(device_);
  c10::Stream stream = c10::impl::getDeviceGuardImpl(device_.type())->getStream(device_);
  std::optional<c10::StreamGuard> current;
  if (call.async) {
    c10::Event called(device_.type());
    called.record(stream);
    called.block(*stream_);
    stream = *stream_;
    current.emplace(stream);
  }
  C10dCall issued(*group_, call.op, timeoutOf(call.options), /*interruptible=*/true);
  try {
    issued.carryOut(body);
  } catch (...) {
    group_->monitor->seen();
    throw;
  }
  onDevice_.push_back(std::make_shared<DeviceOperation>(stream, std::make_shared<Body>(body)));
  return c10::make_intrusive<DeviceWork>(onDevice_.back());
}

TorchCommBackend::WorkPtr C10dBackend::exchangeOnStream(const Call& call,
                                                        const std::vector<P2POp>& ops) {
  return executeOnStream(call, [ops](const C10dCall& c) {
    std::vector<C10dCall::WorkPtr> works;
    c.issue([&](c10d::Backend& backend) {
      // The operations are in a group, because one after another those of a pair could wait for
      // each other.
      const bool grouped = ops.size() > 1 && backend.supportsCoalescing();
      if (grouped) backend.startCoalescing();
      for (const P2POp& one : ops) {
        Tensors bytes{bytesOf(one.tensor)};
        works.push_back(one.type == P2POp::Type::SEND ? backend.send(bytes, one.peer, one.tag)
                                                      : backend.recv(bytes, one.peer, one.tag));
      }
      if (grouped) works = {backend.endCoalescing()};
      return C10dCall::WorkPtr();
    });
    for (const auto& work : works) c.wait(work);
  });
}

}  // namespace torch::comms
