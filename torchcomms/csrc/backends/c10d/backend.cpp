#include "torchcomms/csrc/backends/c10d/backend.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ctran/base/error.h"
#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "torchcomms/csrc/backends/c10d/errors.hpp"
#include "torchcomms/csrc/backends/c10d/group.hpp"
#include "torchcomms/csrc/backends/rendezvous.hpp"
#include "torchcomms/csrc/backends/stream/waiting.hpp"
#include "torchcomms/csrc/current_stream.hpp"

namespace torch::comms {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::optional<int> rankOf(int peer) {
  return peer == kAnySource ? std::nullopt : std::optional(peer);
}

/// Waits for the operation of a synchronous call.
void finish(OpName op, TorchWork& work, C10dGroup& group) {
  try {
    work.wait();
  } catch (const ctran::Error&) {
    group.monitor->seen();
    throw;
  } catch (...) {
    group.monitor->seen();
    group.interrupted(op);
    throw;
  }
}

/// For the time of a collective. Those of two threads could have another order on each rank, and
/// take each other's data.
class Entered {
 public:
  Entered(std::atomic<bool>& entered, const C10dGroup& group) : entered_(entered) {
    if (!entered_.exchange(true)) return;
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "two threads use communicator '" + group.name + "' at the same time", {}, {},
                       "give every thread a communicator of its own, or take turns");
  }
  ~Entered() { entered_ = false; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  std::atomic<bool>& entered_;
};

/// When there are so many queues, those that have nothing to do are destroyed.
constexpr size_t kMostMessageQueues = 16;

bool isIdle(const MessageQueues::value_type& one) { return one.second.idle(); }

/// Waits for what has been posted.
void drain(TaskQueue& queue, const std::shared_ptr<ErrorMonitor>& monitor) {
  if (queue.idle()) return;
  const auto mark = std::make_shared<C10dOperation>(OpName::finalize, 1, monitor);
  queue.post([mark] { mark->partEnded(nullptr); });
  mark->wait(std::nullopt);
}

/// What is left of a communicator while operations go on, whose works may be waited for.
struct Remains {
  std::shared_ptr<C10dGroup> group;
  TaskQueue collectives;
  MessageQueues messages;

  Remains(std::shared_ptr<C10dGroup> group, TaskQueue collectives, MessageQueues messages)
      : group(std::move(group)),
        collectives(std::move(collectives)),
        messages(std::move(messages)) {}
  Remains(Remains&&) = default;
  ~Remains() {
    if (!group) return;  // moved from
    drain(collectives, group->monitor);
    for (auto& [key, queue] : messages) drain(queue, group->monitor);
  }
};

/// A c10d backend is destroyed when its operations have ended, if only by their timeout: not here.
/// Those of a device have ended when `haveEnded` says so.
template <typename Owned>
void destroyAside(Owned owned, std::function<bool()> haveEnded = nullptr) {
  auto* const last = new Owned(std::move(owned));
  const auto destroy = [last] {
    try {
      ctran::startThread("comms-end", [last] { delete last; });
    } catch (const ctran::Error& error) {  // it stays
      ctran::log(ctran::LogComponent::Torch, ctran::LogLevel::Warn,
                 "a c10d backend is not taken down: %s", error.what());
    }
  };
  haveEnded ? stream::whenHolds(std::move(haveEnded), destroy) : destroy();
}

}  // namespace

C10dBackend::C10dBackend(C10dKind kind) : kind_(std::move(kind)) {}

C10dBackend::~C10dBackend() {
  if (!group_) return;
  if (!group_->isOwn()) {  // it has none of the threads that the destructors of all this wait for
    new Remains(std::move(group_), std::move(collectives_), std::move(messages_));
    new std::deque(std::move(onDevice_));
    return;
  }
  group_->monitor->seen();
  const bool idle = collectives_.idle() && std::ranges::all_of(messages_, isIdle);
  if (!forgetEnded()) {
    destroyAside(std::move(group_), [left = std::move(onDevice_)] {
      return std::ranges::all_of(left, [](const auto& one) { return one->hasEnded(); });
    });
  } else if (idle && !group_->isBroken()) {
    const HostWait wait;
    group_.reset();
  } else {
    destroyAside(Remains(std::move(group_), std::move(collectives_), std::move(messages_)));
  }
}

void C10dBackend::init(at::Device device, std::string_view name, const CommOptions& options) {
  if (device.is_cpu() == kind_.isOnStreams()) {
    throw ctran::Error(ctran::ErrorKind::Unsupported,
                       "Backend " + kind_.name + " has no support for device '" + device.str() +
                           "' in this build; it works on tensors of '" + kind_.device + "'",
                       {}, {}, std::string("pass torch.device(\"") + kind_.device + "\")");
  }
  options_ = options;
  options_.name = std::string(name);
  device_ = stream::chooseDevice(device, options.rank.value());

  auto group = std::make_shared<C10dGroup>();
  group->name = options_.name;
  group->rank = options_.rank.value();
  group->size = options_.size.value();
  group->monitor =
      std::make_shared<ErrorMonitor>("rank " + std::to_string(group->rank) + " of communicator '" +
                                         group->name + "' (" + kind_.name + ")",
                                     options.abort_process_on_timeout_or_error);
  if (group->size == 1) {
    group->store = c10::make_intrusive<c10d::HashStore>();
  } else if (options.store) {
    group->store = meet(options.store, kind_.name + "/" + group->name, group->rank, group->size,
                        options.timeout);
  } else {
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       "A communicator of " + std::to_string(group->size) +
                           " ranks needs a store through which they find each other",
                       {}, {}, "set CommOptions::store, to a TCPStore for instance");
  }
  const c10::OptionalDeviceGuard guard(device_);
  group->backend =
      kind_.factory(group->store, group->rank, group->size, options.timeout, options.hints);
  if (kind_.isOnStreams()) {
    stream_ = c10::impl::getDeviceGuardImpl(device_.type())->getStreamFromGlobalPool(device_);
  }
  group_ = std::move(group);
}

void C10dBackend::finalize() {
  group_->requireOwn();
  drainDevice();
  drain(collectives_, group_->monitor);
  for (auto& [key, queue] : messages_) drain(queue, group_->monitor);
  if (group_->isBroken()) {
    destroyAside(std::move(group_->backend));
  } else {
    const HostWait wait;
    group_->backend.reset();
  }
}

std::string_view C10dBackend::getBackendVersion() const { return "torch " TORCH_VERSION; }

bool C10dBackend::isAborted() const {
  const bool broken = group_->isBroken();
  if (broken) group_->monitor->seen();
  return broken;
}

void C10dBackend::setFailureListener(std::function<void(bool)> listener) {
  group_->monitor->listen(std::move(listener));
}

TorchCommBackend::WorkPtr C10dBackend::execute(const Call& call, Body body) {
  if (kind_.isOnStreams()) return executeOnStream(call, body);
  const OpName op = call.op;
  group_->requireWhole(op);
  const Entered entered(entered_, *group_);
  const milliseconds timeout = timeoutOf(call.options);
  if (!call.async && collectives_.idle()) {
    const HostWait wait;
    try {
      C10dCall(*group_, op, timeout, /*interruptible=*/true).carryOut(body);
    } catch (...) {
      group_->monitor->seen();
      throw;
    }
    return TorchWorkCompleted::shared();
  }
  const auto operation = std::make_shared<C10dOperation>(op, 1, group_->monitor);
  WorkPtr work = c10::make_intrusive<C10dWork>(operation);
  collectives_.post([group = group_, op, timeout, operation, body = std::move(body)]() mutable {
    operation->started();
    std::exception_ptr error;
    try {
      group->requireWhole(op);
      C10dCall(*group, op, timeout, /*interruptible=*/false).carryOut(body);
    } catch (...) {
      error = std::current_exception();
    }
    body = nullptr;  // lets go of the tensors
    operation->partEnded(error);
  });
  if (call.async) return work;
  finish(op, *work, *group_);
  return TorchWorkCompleted::shared();
}

TaskQueue& C10dBackend::queueOf(const P2POp& message) {
  const MessageQueues::key_type key(message.peer, message.type, message.tag);
  // Each has a thread. Programs may take a new tag for each message.
  if (messages_.size() >= kMostMessageQueues && !messages_.contains(key)) {
    std::erase_if(messages_, isIdle);
  }
  return messages_[key];
}

TorchCommBackend::WorkPtr C10dBackend::exchange(const Call& call) {
  const OpName op = call.op;
  const std::vector<P2POp> ops = call.messages();
  const auto sends = [](const P2POp& one) { return one.type == P2POp::Type::SEND; };
  for (const P2POp& one : ops) {
    if (one.peer == kAnySource && kind_.isOnStreams()) unsupported(call);
    if (one.peer == kAnySource && one.tensor.numel() == 0) {  // Gloo fails, and breaks the group
      throw ctran::Error(ctran::ErrorKind::Unsupported,
                         "backend " + std::string(getBackendName()) +
                             " does not receive empty tensors from any source",
                         {}, "recv", "name the source, or use backend ctran");
    }
    if (one.peer != getRank()) continue;
    throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                       sends(one) ? "Cannot send to self" : "Cannot recv from self", {one.peer},
                       std::string(toString(op)), "copy the tensor, or use backend ctran");
  }
  if (kind_.isOnStreams()) return exchangeOnStream(call, ops);
  group_->requireWhole(op);
  const Clock::time_point deadline = Clock::now() + timeoutOf(call.options);
  const auto operation = std::make_shared<C10dOperation>(op, ops.size(), group_->monitor);
  WorkPtr work = c10::make_intrusive<C10dWork>(operation);

  // All are issued before any is waited for.
  std::vector<c10::intrusive_ptr<c10d::Work>> issued;
  issued.reserve(ops.size());
  for (const P2POp& one : ops) {
    const HostWait wait;
    std::vector<at::Tensor> bytes{bytesOf(one.tensor)};
    try {
      const std::lock_guard lock(group_->issuing);
      issued.push_back(sends(one)               ? group_->backend->send(bytes, one.peer, one.tag)
                       : one.peer == kAnySource ? group_->backend->recvAnysource(bytes, one.tag)
                                                : group_->backend->recv(bytes, one.peer, one.tag));
    } catch (...) {
      const auto error = translated(std::current_exception(), op, group_->name, rankOf(one.peer));
      group_->breakWith(error);
      group_->monitor->seen();
      std::rethrow_exception(error);
    }
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    queueOf(ops[i]).post(
        [group = group_, op, peer = ops[i].peer, deadline, operation, part = issued[i]]() mutable {
          operation->started();
          std::exception_ptr error;
          try {
            const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
            part->wait(std::max(left, milliseconds(1)));
            if (peer == kAnySource) operation->cameFrom(part->sourceRank());
          } catch (...) {
            error = translated(std::current_exception(), op, group->name, rankOf(peer));
            group->breakWith(error);
          }
          part.reset();
          operation->partEnded(error);
        });
  }
  if (!call.async) finish(op, *work, *group_);
  return work;
}

std::shared_ptr<C10dBackend> C10dBackend::part(const std::vector<int>& ranks,
                                               const std::string& name,
                                               const CommOptions& options) {
  group_->requireWhole(OpName::split);
  // Counted on every rank, member or not, so that all agree on the key.
  const uint64_t number = splits_++;
  if (ranks.empty()) return nullptr;
  CommOptions childOptions = options;
  childOptions.rank =
      static_cast<int>(std::find(ranks.begin(), ranks.end(), getRank()) - ranks.begin());
  childOptions.size = static_cast<int>(ranks.size());
  childOptions.store = c10::make_intrusive<c10d::PrefixStore>(
      "split/" + std::to_string(number) + "/" +
          std::to_string(*std::min_element(ranks.begin(), ranks.end())),
      group_->store);
  auto child = std::make_shared<C10dBackend>(kind_);
  child->init(device_, name, childOptions);
  return child;
}

}  // namespace torch::comms
