#pragma once

#include <c10/util/FunctionRef.h>

#include <comms/torchcomms/TorchCommBackend.hpp>
#include <comms/torchcomms/TorchCommHooks.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch::comms {

/// What is recorded of an operation of a window: which signal it sends or waits for, if it does.
struct RecordedSignal {
  uint64_t count = 0;  ///< number of the word + 1; 0: it is counted
  uint32_t tag = 0;    ///< see windowTag
};

/// Records the calls of a communicator whose backend is not the engine on CPUs, which records by
/// itself. The format is the engine's: `torchcomms analyze`, `top` and `trace` see these calls as
/// they see its own.
///
/// The record is in memory of this process alone: no other rank keeps it when the process has
/// ended. What an operation waits for and what goes to whom only the backend knows; they are not
/// recorded. Replays of captured calls are, if the backend makes a ReplayTrace.
///
/// One thread at a time, as of the communicator; works end on any.
class CallRecorder : public std::enable_shared_from_this<CallRecorder> {
 public:
  using WorkPtr = c10::intrusive_ptr<TorchWork>;

  /// `ranks`: as TorchComm::getRanks. `uuid`: of a communicator that has been reconfigured, else
  /// empty. Null if nothing is to be recorded, or there is no memory for it.
  static std::shared_ptr<CallRecorder> of(const TorchCommBackend& backend,
                                          const std::vector<int>& ranks,
                                          const std::string& uuid = {});
  ~CallRecorder();

  /// Issues an operation and records it. What `issue` throws is thrown.
  WorkPtr around(OpName op, const PreHookArgs& args, c10::function_ref<WorkPtr()> issue) {
    return around(op, args, {}, issue);
  }
  WorkPtr around(OpName op, const PreHookArgs& args, const RecordedSignal& signal,
                 c10::function_ref<WorkPtr()> issue);
  /// The number of a window that is made, alike on all ranks.
  uint32_t countWindow() { return windows_++; }
  /// The rank leaves the communicator: that its process ends will be no death.
  void left();

 private:
  struct State;
  struct Entries;
  explicit CallRecorder(std::unique_ptr<State> state);
  /// Records when the operation starts and ends.
  void follow(const WorkPtr& work, const Entries& entries);

  const std::unique_ptr<State> state_;
  uint32_t windows_ = 0;
};

}  // namespace torch::comms
