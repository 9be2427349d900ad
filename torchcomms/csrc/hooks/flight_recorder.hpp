#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ctran/base/json.h"
#include "torchcomms/csrc/hooks/operation_view.hpp"

namespace torch::comms {

/// The last operations of some communicators, in a ring. All methods may be called from any thread.
class FlightRecorder {
 public:
  /// A communicator whose operations are recorded. Numbers are those of the last operation.
  struct Group {
    int id;
    std::string name;  ///< no other of the recorder has it
    std::string backend;
    std::vector<int> ranks;  ///< by rank of the communicator: ranks of the one it was split from
    int rank;
    std::shared_ptr<Group> oneSided = nullptr;  ///< see begin
    int64_t collectives = 0;
    int64_t pointToPoints = 0;
    int64_t lastStarted = -1;
    int64_t lastCompleted = -1;
    bool broken = false;
  };
  using GroupPtr = std::shared_ptr<Group>;

  explicit FlightRecorder(size_t capacity) : capacity_(capacity) {}

  /// Makes room for at least so many.
  void reserve(size_t capacity);
  GroupPtr addGroup(const std::string& name, const std::string& backend, std::vector<int> ranks,
                    int rank);

  /// An operation that is about to be issued. Returns the numbers of its entries, first and behind
  /// last: a batch has one for each send and receive, and one for itself. A synchronous operation
  /// starts with its call. Operations on windows, which no other rank has to match, count in a
  /// group "<name>/windows" that this rank has for itself.
  struct Records {
    uint64_t first = 0;
    uint64_t end = 0;
  };
  Records begin(const GroupPtr& group, OpName name, uint64_t opId, const PreHookArgs& args);
  void started(Records records);
  void completed(Records records);

  /// Whether the communicator is of any more use.
  void setBroken(const GroupPtr& group, bool broken);
  /// The names of those that are not.
  std::vector<std::string> broken() const;
  /// Of this process in the first group, 0 without one.
  int rank() const;

  void clear();
  size_t size() const;

  std::string json(bool includeCompleted) const;
  std::string pickle(bool includeCompleted) const;

 private:
  enum class State : uint8_t { Scheduled, Started, Completed };

  struct Entry {
    uint64_t record;
    GroupPtr group;
    int64_t collectiveNumber;
    int64_t pointToPointNumber;
    uint64_t opId;
    std::string name;  ///< "all_reduce", "send 0->1"
    std::vector<std::vector<int64_t>> inputSizes;
    std::vector<std::vector<int64_t>> outputSizes;
    std::vector<std::string> inputTypes;
    std::vector<std::string> outputTypes;
    int64_t timeoutMillis;
    bool isPointToPoint;
    bool isOneSided = false;
    std::string threadName;
    int threadId;
    int64_t created;
    int64_t startedAt = 0;    ///< nanoseconds since 1970; 0 while it has not
    int64_t completedAt = 0;  ///< the same
    State state = State::Scheduled;
  };

  GroupPtr addLocked(std::string name, const std::string& backend, std::vector<int> ranks,
                     int rank);
  void beginOneSided(const GroupPtr& group, OpName name, uint64_t opId, const OperationView& view);
  void add(const GroupPtr& group, uint64_t opId, std::string name,
           const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
           std::chrono::milliseconds timeout, bool isPointToPoint);
  void start(Entry& entry, int64_t at);
  template <typename Change>
  void change(Records records, Change change);
  ctran::Json describe(bool includeCompleted, bool forAnalyzer) const;
  static ctran::Json describe(const Entry& entry, bool forAnalyzer);

  mutable std::mutex mutex_;  // guards what follows
  size_t capacity_;
  uint64_t next_ = 0;
  std::deque<Entry> entries_;
  std::vector<GroupPtr> groups_;
  std::map<std::string, int> names_;
};

}  // namespace torch::comms
