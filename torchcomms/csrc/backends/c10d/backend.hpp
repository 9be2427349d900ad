#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <tuple>

#include "torchcomms/csrc/backends/builtin_backend.hpp"
#include "torchcomms/csrc/backends/c10d/device_work.hpp"
#include "torchcomms/csrc/backends/c10d/reduction.hpp"
#include "torchcomms/csrc/backends/c10d/task_queue.hpp"
#include "torchcomms/csrc/backends/c10d/work.hpp"

namespace torch::comms {

struct C10dGroup;

/// Makes a c10d backend. Collective over its ranks, which share `store`; nothing else uses it.
using C10dFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout, const Hints& hints)>;

/// Threads that wait for messages, by peer, direction and tag.
using MessageQueues = std::map<std::tuple<int, P2POp::Type, int>, TaskQueue>;

/// Describes a c10d backend.
struct C10dKind {
  std::string name;
  C10dFactory factory;
  const char* device = "cpu";  ///< the device of the tensors that it takes
  bool reducesBits = true;     ///< it has BAND, BOR and BXOR

  /// Returns whether its operations are work on streams: a wait for one orders the current stream
  /// behind it.
  bool isOnStreams() const { return std::string_view(device) != "cpu"; }
};

/// A c10d backend as a backend of ours.
///
/// It uses allreduce, reduce, broadcast, allgather, gather, scatter, alltoall_base, barrier, send,
/// recv and recvAnysource of the c10d backend, and groups of calls where it has them. All of them
/// move bytes, so every dtype can be moved; values that are reduced are encoded (see Reduction).
/// Reduce-scatter exchanges the parts and reduces them here, in the order of ranks.
///
/// Collectives run one after another on a queue; a synchronous one that finds the queue idle runs
/// on the caller's thread. Sends and receives are issued at once, in order; each peer and direction
/// has a queue on which they are waited for. (A c10d work of a send or receive cannot be asked
/// whether it has ended, only waited for, so this takes threads.)
///
/// On streams a call is issued on the caller's thread: synchronous ones on the current stream,
/// asynchronous ones on a stream of the communicator that follows the current one. There are no
/// queues then, and no timeouts except for connecting; finalize waits at most the timeout.
///
/// After a failure nothing is known of the c10d backend's connections, so every later operation
/// throws the error again. Like the c10d backend, it cannot send to itself.
class C10dBackend final : public BuiltinBackend {
 public:
  explicit C10dBackend(C10dKind kind);
  ~C10dBackend() override;
  C10dBackend(const C10dBackend&) = delete;
  C10dBackend& operator=(const C10dBackend&) = delete;

  void init(at::Device device, std::string_view name, const CommOptions& options) override;
  void finalize() override;

  std::string_view getBackendName() const override { return kind_.name; }
  std::string_view getBackendVersion() const override;

  WorkPtr issue(const Call& call) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override {
    return part(ranks, name, options);
  }
  std::shared_ptr<C10dBackend> part(const std::vector<int>& ranks, const std::string& name,
                                    const CommOptions& options);

  bool isAborted() const override;
  void setTimeout(std::chrono::milliseconds timeout) override { options_.timeout = timeout; }
  void setHints(const Hints& hints) override { options_.hints = hints; }
  void setFailureListener(std::function<void(bool)> listener) override;

 private:
  using Body = std::function<void(const class C10dCall&)>;

  Body reductionBody(const Call& call) const;
  Body movementBody(const Call& call) const;
  /// Runs or posts a collective. What `body` captures is held until it has ended.
  WorkPtr execute(const Call& call, Body body);
  WorkPtr executeOnStream(const Call& call, const Body& body);
  /// Forgets the operations that have ended on the device. Returns whether none is left.
  bool forgetEnded();
  /// Waits until the device has ended what was issued. Throws ctran::Error (Timeout).
  void drainDevice();
  /// Returns the queue on which the end of a message is waited for, behind the earlier messages
  /// that it is matched with.
  TaskQueue& queueOf(const P2POp& message);
  WorkPtr exchange(const Call& call);
  WorkPtr exchangeOnStream(const Call& call, const std::vector<P2POp>& ops);

  const C10dKind kind_;
  std::shared_ptr<C10dGroup> group_;
  TaskQueue collectives_;
  std::atomic<bool> entered_{false};  ///< a thread of the host is calling a collective
  MessageQueues messages_;
  std::optional<c10::Stream> stream_;  ///< used by asynchronous calls on streams
  std::deque<std::shared_ptr<DeviceOperation>> onDevice_;  ///< operations that may not have ended
  uint64_t splits_ = 0;
};

}  // namespace torch::comms
