#include <functional>

#include "ctran/base/error.h"
#include "ctran/plan/mscclpp/program.h"

namespace ctran::plan::mscclpp {
namespace {

int countOr(const Json& json, std::string_view name, int otherwise) {
  const Json* value = json.find(name);
  if (value == nullptr) return otherwise;
  const int64_t number = value->asInt();
  if (number < 0 || number > (1 << 24)) {
    throw Error(ErrorKind::InvalidArgument,
                std::string(name) + " must not be " + std::to_string(number));
  }
  return static_cast<int>(number);
}

std::string stringOr(const Json& json, std::string_view name, const std::string& otherwise) {
  const Json* value = json.find(name);
  return value == nullptr ? otherwise : value->asString();
}

template <class T, class Convert>
std::vector<T> listOf(const Json& json, std::string_view name, Convert convert) {
  std::vector<T> list;
  if (const Json* items = json.find(name)) {
    for (const Json& item : items->items()) list.push_back(std::invoke(convert, item));
  }
  return list;
}

const std::vector<Json> kNoItems;

constexpr size_t kMostBlocks = 1024;  // of a rank, as in the language

Chunk chunkOf(const Json& json) {
  Chunk chunk;
  if (json.find("type")) chunk.type = json.at("type").asString();
  if (json.find("buffer_id")) chunk.bufferId = countOr(json, "buffer_id", 0);
  if (json.find("switch_channel_id")) chunk.switchId = countOr(json, "switch_channel_id", 0);
  chunk.index = countOr(json, "index", 0);
  chunk.size = countOr(json, "size", 1);
  return chunk;
}

Operation operationOf(const Json& json) {
  Operation op;
  op.name = json.at("name").asString();
  op.src = listOf<Chunk>(json, "src_buff", chunkOf);
  op.dst = listOf<Chunk>(json, "dst_buff", chunkOf);
  op.channelIds = listOf<int>(json, "channel_ids", &Json::asInt32);
  op.channelType = stringOr(json, "channel_type", "memory");
  if (const Json* group = json.find("tbg_info")) {
    op.groupIndex = countOr(*group, "tb_id", 0);
    op.groupSize = countOr(*group, "tbg_size", 1);
    if (op.groupSize < 1 || op.groupIndex >= op.groupSize) {
      throw Error(ErrorKind::InvalidArgument, group->print() + " is no place in a group");
    }
  }
  op.barrierId = countOr(json, "barrier_id", -1);
  op.barrierBlocks = countOr(json, "num_threadblocks", 0);
  op.semaphoreIds = listOf<int>(json, "semaphore_ids", &Json::asInt32);
  op.ops = listOf<Operation>(json, "ops", operationOf);
  if (const Json* loop = json.find("iter_context")) {
    op.iterationChunks = countOr(*loop, "num_chunks", 0);
  }
  return op;
}

std::vector<ByType> byType(const Json& json, std::string_view list, const char* type,
                           const char* numbers) {
  return listOf<ByType>(json, list, [&](const Json& item) {
    return ByType{item.at(type).asString(), listOf<int>(item, numbers, &Json::asInt32)};
  });
}

Gpu gpuOf(const Json& json) {
  Gpu gpu;
  gpu.id = countOr(json, "id", 0);
  gpu.inputChunks = countOr(json, "input_chunks", 0);
  gpu.outputChunks = countOr(json, "output_chunks", 0);
  gpu.scratchChunks = countOr(json, "scratch_chunks", 0);
  gpu.threadblocks = listOf<ThreadBlock>(json, "threadblocks", [](const Json& item) {
    return ThreadBlock{
        countOr(item, "id", 0), listOf<Operation>(item, "ops", operationOf),
        byType(item, "channels", "channel_type", "channel_ids"),
        byType(item, "remote_buffer_refs", "access_channel_type", "remote_buffer_ids")};
  });
  if (gpu.threadblocks.size() > kMostBlocks) {
    throw Error(ErrorKind::InvalidArgument, "rank " + std::to_string(gpu.id) + " has " +
                                                std::to_string(gpu.threadblocks.size()) +
                                                " thread blocks; " + std::to_string(kMostBlocks) +
                                                " are the most");
  }
  gpu.channels = byType(json, "channels", "channel_type", "connected_to");
  for (const Json& item : json.find("channels") ? json.at("channels").items() : kNoItems) {
    for (const auto& ranks : listOf<std::vector<int>>(item, "rank_groups", [](const Json& group) {
           return listOf<int>(group, "ranks", &Json::asInt32);
         })) {
      gpu.switches.push_back({item.at("buffer_type").asString(), ranks});
    }
  }
  gpu.remoteBuffers = listOf<RemoteBuffer>(json, "remote_buffers", [](const Json& item) {
    return RemoteBuffer{countOr(item, "rank", 0), item.at("type").asString()};
  });
  gpu.semaphores = listOf<int>(json, "semaphores",
                               [](const Json& item) { return countOr(item, "init_value", 0); });
  return gpu;
}

}  // namespace

Program parse(const Json& json) {
  Program program;
  program.json = json;
  program.name = json.at("name").asString();
  program.collective = json.at("collective").asString();
  program.inPlace = json.boolOr("inplace", false);
  program.doubleScratch = json.boolOr("use_double_scratch_buffer", false);
  program.gpus = listOf<Gpu>(json, "gpus", gpuOf);
  for (size_t r = 0; r < program.gpus.size(); ++r) {
    if (program.gpus[r].id != static_cast<int>(r)) {
      throw Error(ErrorKind::InvalidArgument, "gpus must be listed by rank; number " +
                                                  std::to_string(r) + " is " +
                                                  std::to_string(program.gpus[r].id));
    }
  }
  if (program.gpus.empty()) throw Error(ErrorKind::InvalidArgument, "a program needs gpus");
  return program;
}

}  // namespace ctran::plan::mscclpp
