#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/plan/plan.h"

/// Execution plans of MSCCL++, as its compiler writes them and its executor reads them.
namespace ctran::plan::mscclpp {

/// Some chunks: of a buffer of the rank itself ("i", "o" or "s"), of one of another rank, by its
/// place in the thread block's references, or of all ranks of a switch channel.
struct Chunk {
  std::optional<std::string> type;
  std::optional<int> bufferId;
  std::optional<int> switchId;
  int index = 0;
  int size = 1;
};

struct Operation {
  std::string name;
  std::vector<Chunk> src, dst;
  std::vector<int> channelIds;  ///< places in the thread block's channels of that type
  std::string channelType;
  int groupIndex = 0, groupSize = 1;  ///< of the thread blocks that share the operation
  int barrierId = -1;
  int barrierBlocks = 0;
  std::vector<int> semaphoreIds;
  std::vector<Operation> ops;  ///< of a pipeline
  int iterationChunks = 0;     ///< of a pipeline: chunks of one iteration
};

/// Numbers per type of channel: "memory", "port".
struct ByType {
  std::string type;
  std::vector<int> numbers;
};

struct ThreadBlock {
  int id = 0;
  std::vector<Operation> ops;
  std::vector<ByType> channels;          ///< places in the rank's channels
  std::vector<ByType> remoteBufferRefs;  ///< places in the rank's remote buffers
};

struct RemoteBuffer {
  int rank = 0;
  std::string type;
};

/// The same buffer of several ranks.
struct SwitchChannel {
  std::string type;
  std::vector<int> ranks;
};

struct Gpu {
  int id = 0;
  int inputChunks = 0, outputChunks = 0, scratchChunks = 0;
  std::vector<ThreadBlock> threadblocks;
  std::vector<ByType> channels;  ///< to which ranks
  std::vector<SwitchChannel> switches;
  std::vector<RemoteBuffer> remoteBuffers;
  std::vector<int> semaphores;  ///< initial values
};

/// A program, as a tree; `json` is the text it was read from, of which nothing is lost.
struct Program {
  Json json;
  std::string name, collective;
  bool inPlace = false;
  bool doubleScratch = false;
  std::vector<Gpu> gpus;  ///< by rank
};

class Choices;

/// Throws Error(InvalidArgument).
Program parse(const Json& json);

/// Which operation of a thread block; of a pipeline, also which of its body. -1: none.
struct Origin {
  int op = -1;
  int inner = -1;
};

/// Why there is no plan for a program. Its kind is Unsupported for what a plan cannot say, and
/// InvalidArgument for what is wrong.
class Refusal : public Error {
 public:
  Refusal(ErrorKind kind, const std::string& message, std::string why, LaneId at, Origin origin)
      : Error(kind, message), why_(std::move(why)), at_(at), origin_(origin) {}

  const std::string& why() const { return why_; }  ///< without where
  /// Where: rank and place among its thread blocks; without an operation, the program as a whole.
  LaneId at() const { return at_; }
  Origin origin() const { return origin_; }

 private:
  std::string why_;
  LaneId at_;
  Origin origin_;
};

struct Lowered {
  Plan plan;
  /// [rank][lane][step]: what it comes from. None: a rank waits for all its lanes in the end.
  std::vector<std::vector<std::vector<Origin>>> origins;
  int factor = 1;  ///< chunks of the plan in one of the program
  /// A wait of which timing decides what it waits for, as others wait for the same and nothing
  /// orders them. The plan knows only what holds whatever the timing is: if it is right, so is the
  /// program, and if it is wrong, that says nothing. Where `mayStick`, such a wait may last for
  /// ever in some order, of which the plan knows nothing.
  std::optional<std::pair<LaneId, Origin>> unordered = {};
  bool mayStick = false;
};

/// Of loops, as programs are executed.
inline constexpr int kIterations = 2;

/// The plan that does the same. Thread blocks become lanes. What a group of thread blocks shares is
/// cut into smaller chunks, one for each, and so is what the iterations of a pipeline work on, of
/// which the plan has `iterations`. A switch channel is reduced from all ranks and stored to all.
/// What is reduced in one go is taken in the order of the ranks. Packets get a channel for each
/// time that they are written. Executions of a rank do not overlap, as kernels on a stream do not.
///
/// With `choices`, what nothing orders comes in the order that they choose.
///
/// Throws Refusal.
Lowered lower(const Program& program, int iterations = kIterations, Choices* choices = nullptr);

}  // namespace ctran::plan::mscclpp
