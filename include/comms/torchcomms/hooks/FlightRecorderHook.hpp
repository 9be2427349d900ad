#pragma once

#include <comms/torchcomms/TorchCommHooks.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch::comms {

class FlightRecorder;
class FlightRecordings;

/// Remembers the last operations of communicators: what, when, how far it has come. When one of
/// them breaks (a timeout, an abort, a lost peer) what is remembered is written to a file, which
/// `python -m torch.distributed.flight_recorder.fr_trace` reads. All methods may be called from any
/// thread.
class FlightRecorderHook {
 public:
  /// `maxEntries`: how many are remembered, by default TORCHCOMM_FR_BUFFER_SIZE; with 0 the hook
  /// does nothing. Hooks share what they remember, all of a process, but for `isolated` ones.
  explicit FlightRecorderHook(std::optional<size_t> maxEntries = {}, bool isolated = false);

  /// From now on the operations of `comm` are recorded, and those of communicators split from it.
  /// Once is enough.
  void register_with_comm(TorchComm& comm);
  /// Records no more, of any communicator; keeps what it has.
  void unregister();

  /// JSON, version "2.10" of the format. Without `includeCompleted` only what has not ended well.
  std::string dump_json(bool includeCompleted = true) const;
  /// Writes the same as a pickle, to TORCHCOMM_FR_DUMP_TEMP_FILE followed by the rank (without it
  /// if TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME is true). Returns the path. Throws std::runtime_error.
  std::string dump_file(int rank, bool includeCompleted = true) const;

  /// The names of the communicators that have broken, until they are reconfigured or finalized.
  std::vector<std::string> broken() const;
  /// The rank of this process in the communicator that was registered first, 0 without one.
  int rank() const;

  /// Forgets all entries.
  void reset();
  /// Whether it has communicators to record, and room for entries.
  bool is_enabled() const;
  /// Entries remembered now.
  size_t size() const;

 private:
  std::shared_ptr<FlightRecorder> recorder_;
  std::shared_ptr<FlightRecordings> recordings_;
};

}  // namespace torch::comms
