#include "c_api.h"

#include <chrono>
#include <string_view>

#include "ctran/communicator.h"
#include "ctran/plan.h"
#include "interruption.h"
#include "registered_algorithm.h"

struct mscclpp_algorithm {
  std::shared_ptr<mscclpp::Algorithm> algorithm;
};

namespace {

using mscclpp::c_api::guarded;
using mscclpp::c_api::pointerOr;

constexpr std::string_view kDigits = "0123456789abcdef";

std::string hexadecimal(const mscclpp::UniqueId& id) {
  std::string text;
  for (const uint8_t byte : id) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

/// Whether the text is a unique id.
bool parse(std::string_view text, mscclpp::UniqueId& id) {
  if (text.size() != 2 * id.size()) return false;
  for (size_t i = 0; i < id.size(); ++i) {
    const size_t high = kDigits.find(text[2 * i]);
    const size_t low = kDigits.find(text[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    id[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

}  // namespace

int mscclpp_unique_id(char* text) {
  return static_cast<int>(guarded([&] {
    const std::string id = hexadecimal(mscclpp::TcpBootstrap::createUniqueId());
    id.copy(text, id.size());
    text[id.size()] = '\0';
    return CommResult::CommSuccess;
  }));
}

mscclpp_communicator* mscclpp_communicator_create(int rank, int size, const char* where,
                                                  int timeout_seconds) {
  return pointerOr([&] {
    const auto bootstrap = std::make_shared<mscclpp::TcpBootstrap>(rank, size);
    const std::string text(where);
    mscclpp::UniqueId id;
    if (parse(text, id)) {
      bootstrap->initialize(id, timeout_seconds);
    } else if (text.find("://") != std::string::npos) {
      bootstrap->initializeByStore(text, timeout_seconds);
    } else {
      bootstrap->initialize(text, timeout_seconds);
    }
    bootstrap->engine()->setTimeout(std::chrono::seconds(timeout_seconds));
    return new mscclpp_communicator{std::make_shared<mscclpp::Communicator>(bootstrap)};
  });
}

void mscclpp_communicator_abort(mscclpp_communicator* communicator, const char* reason) {
  guarded([&] {
    const auto bootstrap = communicator->communicator->bootstrap();
    dynamic_cast<const mscclpp::TcpBootstrap&>(*bootstrap).engine()->abort(reason);
    return CommResult::CommSuccess;
  });
}

void mscclpp_set_interruption(int (*is_interrupted)(void)) {
  mscclpp::setInterruption(is_interrupted);
}

void mscclpp_communicator_free(mscclpp_communicator* communicator) { delete communicator; }

int mscclpp_communicator_check(const mscclpp_communicator* communicator) {
  return static_cast<int>(guarded([&] {
    communicator->communicator->checkWaits();
    return CommResult::CommSuccess;
  }));
}

mscclpp_algorithm* mscclpp_algorithm_share(void* shared_ptr) {
  return pointerOr([&] {
    const auto& algorithm = *static_cast<std::shared_ptr<mscclpp::Algorithm>*>(shared_ptr);
    if (!algorithm) throw mscclpp::Error("it is null", mscclpp::ErrorCode::InvalidUsage);
    return new mscclpp_algorithm{algorithm};
  });
}

void mscclpp_algorithm_free(mscclpp_algorithm* algorithm) { delete algorithm; }

const char* mscclpp_algorithm_name(const mscclpp_algorithm* algorithm) {
  return algorithm->algorithm->name().c_str();
}
const char* mscclpp_algorithm_collective(const mscclpp_algorithm* algorithm) {
  return algorithm->algorithm->collective().c_str();
}
int mscclpp_algorithm_buffer_mode(const mscclpp_algorithm* algorithm) {
  return static_cast<int>(algorithm->algorithm->bufferMode());
}
void mscclpp_algorithm_constraint(const mscclpp_algorithm* algorithm, int* world_size,
                                  int* ranks_per_node) {
  const auto constraint = algorithm->algorithm->constraint();
  *world_size = constraint.worldSize;
  *ranks_per_node = constraint.nRanksPerNode;
}
const char* mscclpp_algorithm_tag(const mscclpp_algorithm* algorithm, size_t index,
                                  uint64_t* value) {
  for (const auto& [name, number] : algorithm->algorithm->tags()) {
    if (index-- != 0) continue;
    *value = number;
    return name.c_str();
  }
  return nullptr;
}
void mscclpp_algorithm_range(const mscclpp_algorithm* algorithm, size_t* least, size_t* most) {
  std::tie(*least, *most) = algorithm->algorithm->messageRange();
}
int mscclpp_algorithm_set_range(mscclpp_algorithm* algorithm, size_t least, size_t most) {
  return static_cast<int>(guarded([&] {
    algorithm->algorithm->setMessageSizeRange(least, most);
    return CommResult::CommSuccess;
  }));
}

int mscclpp_algorithm_execute(mscclpp_algorithm* algorithm, mscclpp_communicator* communicator,
                              const void* input, void* output, size_t input_size,
                              size_t output_size, int dtype, int op, void* stream, int blocks,
                              int threads_per_block, int symmetric_memory, size_t extras,
                              const char* const* names, const uint64_t* values, int accum_dtype) {
  return static_cast<int>(guarded([&] {
    mscclpp::Extras named;
    for (size_t i = 0; i < extras; ++i) named[names[i]] = values[i];
    return algorithm->algorithm->execute(
        communicator->communicator, input, output, input_size, output_size,
        static_cast<mscclpp::DataType>(dtype), static_cast<mscclpp::ReduceOp>(op),
        static_cast<cudaStream_t>(stream), nullptr, blocks, threads_per_block,
        symmetric_memory != 0, named, static_cast<mscclpp::DataType>(accum_dtype));
  }));
}

int mscclpp_algorithm_reset(mscclpp_algorithm* algorithm) {
  return static_cast<int>(guarded([&] {
    algorithm->algorithm->reset();
    return CommResult::CommSuccess;
  }));
}

int64_t mscclpp_algorithm_register(mscclpp_algorithm* algorithm, const char* communicator,
                                   int preferred, uint64_t types, uint64_t reductions) {
  int64_t number = -1;
  guarded([&] {
    mscclpp::AlgorithmUse use{communicator, preferred != 0, {}, {}};
    for (int bit = 0; bit < 64; ++bit) {
      if ((types >> bit & 1) != 0) use.types.push_back(static_cast<mscclpp::DataType>(bit));
      if ((reductions >> bit & 1) != 0) {
        use.reductions.push_back(static_cast<mscclpp::ReduceOp>(bit));
      }
    }
    number = static_cast<int64_t>(mscclpp::registerAlgorithm(algorithm->algorithm, use));
    return CommResult::CommSuccess;
  });
  return number;
}

int mscclpp_algorithm_unregister(int64_t number) {
  return static_cast<int>(guarded([&] {
    ctran::api::removePlan(static_cast<uint64_t>(number));
    return CommResult::CommSuccess;
  }));
}
