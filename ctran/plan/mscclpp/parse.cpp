#include "ctran/base/error.h"
#include "ctran/plan/mscclpp/program.h"

namespace ctran::plan::mscclpp {
namespace {

int intOr(const Json& json, std::string_view name, int otherwise) {
  const Json* value = json.find(name);
  if (value == nullptr) return otherwise;
  const int64_t number = value->asInt();
  if (number < 0 || number > (1 << 24)) {
    throw Error(ErrorKind::InvalidArgument,
                std::string(name) + " must not be " + std::to_string(number));
  }
  return static_cast<int>(number);
}

bool boolOr(const Json& json, std::string_view name, bool otherwise) {
  const Json* value = json.find(name);
  return value == nullptr ? otherwise : value->asBool();
}

std::string stringOr(const Json& json, std::string_view name, const std::string& otherwise) {
  const Json* value = json.find(name);
  return value == nullptr ? otherwise : value->asString();
}

template <class T, class Convert>
std::vector<T> listOf(const Json& json, std::string_view name, Convert convert) {
  std::vector<T> list;
  if (const Json* items = json.find(name)) {
    for (const Json& item : items->items()) list.push_back(convert(item));
  }
  return list;
}

const std::vector<Json> kNoItems;

int number(const Json& json) { return static_cast<int>(json.asInt()); }

Chunk chunkOf(const Json& json) {
  Chunk chunk;
  if (json.find("type")) chunk.type = json.at("type").asString();
  if (json.find("buffer_id")) chunk.bufferId = intOr(json, "buffer_id", 0);
  if (json.find("switch_channel_id")) chunk.switchId = intOr(json, "switch_channel_id", 0);
  chunk.index = intOr(json, "index", 0);
  chunk.size = intOr(json, "size", 1);
  return chunk;
}

Operation operationOf(const Json& json) {
  Operation op;
  op.name = json.at("name").asString();
  op.src = listOf<Chunk>(json, "src_buff", chunkOf);
  op.dst = listOf<Chunk>(json, "dst_buff", chunkOf);
  op.channelIds = listOf<int>(json, "channel_ids", number);
  op.channelType = stringOr(json, "channel_type", "memory");
  if (const Json* group = json.find("tbg_info")) {
    op.groupIndex = intOr(*group, "tb_id", 0);
    op.groupSize = intOr(*group, "tbg_size", 1);
    if (op.groupSize < 1 || op.groupIndex >= op.groupSize) {
      throw Error(ErrorKind::InvalidArgument, group->print() + " is no place in a group");
    }
  }
  op.barrierId = intOr(json, "barrier_id", -1);
  op.barrierBlocks = intOr(json, "num_threadblocks", 0);
  op.semaphoreIds = listOf<int>(json, "semaphore_ids", number);
  op.ops = listOf<Operation>(json, "ops", operationOf);
  if (const Json* loop = json.find("iter_context")) {
    op.iterationChunks = intOr(*loop, "num_chunks", 0);
  }
  return op;
}

std::vector<ByType> byType(const Json& json, std::string_view list, const char* type,
                           const char* numbers) {
  return listOf<ByType>(json, list, [&](const Json& item) {
    return ByType{item.at(type).asString(), listOf<int>(item, numbers, number)};
  });
}

Gpu gpuOf(const Json& json) {
  Gpu gpu;
  gpu.id = intOr(json, "id", 0);
  gpu.inputChunks = intOr(json, "input_chunks", 0);
  gpu.outputChunks = intOr(json, "output_chunks", 0);
  gpu.scratchChunks = intOr(json, "scratch_chunks", 0);
  gpu.threadblocks = listOf<ThreadBlock>(json, "threadblocks", [](const Json& item) {
    return ThreadBlock{
        intOr(item, "id", 0), listOf<Operation>(item, "ops", operationOf),
        byType(item, "channels", "channel_type", "channel_ids"),
        byType(item, "remote_buffer_refs", "access_channel_type", "remote_buffer_ids")};
  });
  gpu.channels = byType(json, "channels", "channel_type", "connected_to");
  for (const Json& item : json.find("channels") ? json.at("channels").items() : kNoItems) {
    for (const auto& ranks : listOf<std::vector<int>>(item, "rank_groups", [](const Json& group) {
           return listOf<int>(group, "ranks", number);
         })) {
      gpu.switches.push_back({item.at("buffer_type").asString(), ranks});
    }
  }
  gpu.remoteBuffers = listOf<RemoteBuffer>(json, "remote_buffers", [](const Json& item) {
    return RemoteBuffer{intOr(item, "rank", 0), item.at("type").asString()};
  });
  gpu.semaphores = listOf<int>(json, "semaphores",
                               [](const Json& item) { return intOr(item, "init_value", 0); });
  return gpu;
}

}  // namespace

Program parse(const Json& json) {
  Program program;
  program.json = json;
  program.name = json.at("name").asString();
  program.collective = json.at("collective").asString();
  program.inPlace = boolOr(json, "inplace", false);
  program.doubleScratch = boolOr(json, "use_double_scratch_buffer", false);
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
