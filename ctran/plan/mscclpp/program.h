#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ctran/plan/plan.h"

/// Execution plans of MSCCL++, as its compiler writes them and its executor reads them.
namespace ctran::plan::mscclpp {

/// Some chunks: of a buffer of the rank itself ("i", "o" or "s"), or of one of another rank, by its
/// place in the thread block's references.
struct Chunk {
  std::optional<std::string> type;
  std::optional<int> bufferId;
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
  bool usesSwitch = false;
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

struct Gpu {
  int id = 0;
  int inputChunks = 0, outputChunks = 0, scratchChunks = 0;
  std::vector<ThreadBlock> threadblocks;
  std::vector<ByType> channels;  ///< to which ranks
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

/// Throws Error(InvalidArgument).
Program parse(const Json& json);

/// The plan that does the same. Thread blocks become lanes. What a group of thread blocks shares is
/// cut into smaller chunks, one for each; the body of a pipeline runs once, as the whole plan is
/// executed unit by unit; packets get a channel for each time that they are written; executions of
/// a rank do not overlap, as kernels on a stream do not.
///
/// Throws Error(Unsupported), naming rank, thread block and operation, for what a plan cannot say:
/// multicast, semaphores and channels with several users, packets that are written twice.
Plan lower(const Program& program);

}  // namespace ctran::plan::mscclpp
