#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unordered_map>
#include <vector>

namespace torch::comms {

using Hints = std::unordered_map<std::string, std::string>;

/// In the options of an operation: the timeout of the communicator.
inline constexpr std::chrono::milliseconds kNoTimeout{0};

/// How a communicator is made. A default-constructed one reads TORCHCOMM_ABORT_ON_ERROR and
/// TORCHCOMM_TIMEOUT_SECONDS from the environment; throws ctran::Error when those make no
/// sense.
class CommOptions {
 public:
  CommOptions();

  /// What happens on an error that nobody is waiting for: the process ends (true), or the work and
  /// the next call tell (false). An error in a blocking call or in a wait is always thrown.
  bool abort_process_on_timeout_or_error;
  /// Of the creation and, by default, of every operation.
  std::chrono::milliseconds timeout;
  /// Through which the ranks find each other; not needed for one rank.
  c10::intrusive_ptr<c10d::Store> store;
  bool enable_reconfigure = false;
  bool is_high_priority_stream = false;
  /// For the backend, see its documentation.
  Hints hints;
  std::string name;
  /// Place of this process in the communicator. Left out, they come from TORCHCOMM_RANK and
  /// TORCHCOMM_SIZE, or from RANK and WORLD_SIZE; without those the communicator has one rank.
  std::optional<int> rank;
  std::optional<int> size;

  bool operator==(const CommOptions& other) const;
};

/// What every operation takes. `timeout` zero: the communicator's.
struct OpOptions {
  Hints hints;
  std::chrono::milliseconds timeout = kNoTimeout;
};

/// A message is received by the receive that names its sender and its tag; among those, in order.
struct SendOptions : OpOptions {
  int tag = 0;
};
struct RecvOptions : OpOptions {
  int tag = 0;
};
struct BatchP2POptions : OpOptions {};
struct BroadcastOptions : OpOptions {};
struct AllReduceOptions : OpOptions {};
struct ReduceOptions : OpOptions {};
struct AllGatherOptions : OpOptions {};
/// `prepared`: what TorchCommBackend::prepare has returned for the output, if anything.
struct AllGatherSingleOptions : OpOptions {
  std::shared_ptr<void> prepared;
};
struct ReduceScatterOptions : OpOptions {};
struct ReduceScatterSingleOptions : OpOptions {};
struct AllToAllOptions : OpOptions {};
struct AllToAllSingleOptions : OpOptions {
  std::shared_ptr<void> prepared;  ///< as above
};
struct AllToAllvSingleOptions : OpOptions {};
struct BarrierOptions : OpOptions {};
struct ScatterOptions : OpOptions {};
struct GatherOptions : OpOptions {};
struct GatherSingleOptions : OpOptions {};

/// Of whom a communicator made with CommOptions::enable_reconfigure consists from now on.
struct ReconfigureOptions {
  /// Names this change: all members pass the same, and never one that they have passed before.
  std::string uuid;
  /// What getInitHandle says on every member, this one included.
  std::vector<std::string> init_handles;
  /// Rank r is the process of `init_handles[r]`. Otherwise the order does not matter: the ranks go
  /// by the handles, sorted.
  bool ordered = true;
  std::chrono::milliseconds timeout = kNoTimeout;
  Hints hints;
};

}  // namespace torch::comms
