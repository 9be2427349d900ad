// The tuner plug-in: NCCL loads it where NCCL_TUNER_PLUGIN names this library, and asks it before
// each operation.
#include <atomic>
#include <memory>
#include <new>

#include "ctran/base/log.h"
#include "torchcomms/csrc/nccl_plugin/abi.h"
#include "torchcomms/csrc/nccl_plugin/names.h"
#include "torchcomms/csrc/nccl_plugin/plugin.h"
#include "torchcomms/csrc/nccl_plugin/table.h"

namespace torchcomms::nccl_plugin {
namespace {

/// What `torchcomms tune` has NCCL take while it measures, and how that went.
struct Forced {
  std::atomic<int> algorithm{-1}, protocol{-1}, channels{-1};
  std::atomic<uint64_t> taken{0}, refused{0};
};
Forced gForced;

struct Communicator {
  Table table;
  uint64_t ranks, nodes;
};

Result open(void** context, size_t ranks, size_t nodes) noexcept try {
  *context = nullptr;
  auto made = std::make_unique<Communicator>(Communicator{{}, ranks, nodes});
  const std::string path = tuningFile();
  if (!path.empty()) {
    try {
      made->table = Table::read(path);
      ctran::log(ctran::LogComponent::Select, ctran::LogLevel::Info,
                 "NCCL among %zu ranks goes by the %zu lines of %s", ranks, made->table.size(),
                 path.c_str());
    } catch (const std::exception& error) {
      ctran::log(ctran::LogComponent::Select, ctran::LogLevel::Warn, "NCCL chooses by itself: %s",
                 error.what());
    }
  }
  *context = made.release();
  return Result::Success;
} catch (const std::exception&) {  // no memory
  return Result::Success;
}

Result close(void* context) noexcept {
  delete static_cast<Communicator*>(context);
  return Result::Success;
}

bool isForced(Choice& choice) {
  choice = {gForced.algorithm.load(), gForced.protocol.load(), gForced.channels.load()};
  return choice.algorithm >= 0;
}

Choice answer(void* context, int collective, size_t bytes, int pipeOps, int registered) {
  const auto* comm = static_cast<const Communicator*>(context);
  if (comm == nullptr) return {};
  return comm->table.find({collective, bytes, comm->nodes, comm->ranks, pipeOps, registered});
}

/// Whether NCCL can do it that way. A table names what is not to be weighed any more: its cost is
/// 0.
bool take(const Choice& choice, float* costs, int algorithms, int protocols, int* channels) {
  if (costs == nullptr || choice.algorithm >= algorithms || choice.protocol >= protocols) {
    return false;
  }
  bool isTaken = false;
  for (int a = 0; a < algorithms; ++a) {
    for (int p = 0; p < protocols; ++p) {
      float& cost = costs[a * protocols + p];
      const bool isMeant = (choice.algorithm < 0 || a == choice.algorithm) &&
                           (choice.protocol < 0 || p == choice.protocol);
      if (!isMeant || cost == kCannot) continue;
      // Where several are left, NCCL's own estimates decide among them.
      const bool isOne = choice.algorithm >= 0 && choice.protocol >= 0;
      cost = isOne ? 0.0F : cost * 1e-6F;
      isTaken = true;
    }
  }
  if (isTaken && choice.channels > 0) *channels = choice.channels;
  return isTaken;
}

Result choose(void* context, int collective, size_t bytes, int pipeOps, float** costs,
              int algorithms, int protocols, int registered, int* channels) noexcept {
  Choice choice;
  // What NCCL calls a table of pointers is one array.
  auto* const table = reinterpret_cast<float*>(costs);
  if (isForced(choice)) {
    const bool isTaken = take(choice, table, algorithms, protocols, channels);
    (isTaken ? gForced.taken : gForced.refused).fetch_add(1);
    return Result::Success;
  }
  choice = answer(context, collective, bytes, pipeOps, registered);
  if (choice.algorithm >= 0 || choice.protocol >= 0) {
    take(choice, table, algorithms, protocols, channels);
  } else if (choice.channels > 0) {
    *channels = choice.channels;
  }
  return Result::Success;
}

Result chooseV2(void* context, int collective, size_t bytes, int, int, int pipeOps, int* algorithm,
                int* protocol, int* channels) noexcept {
  Choice choice;
  if (!isForced(choice)) choice = answer(context, collective, bytes, pipeOps, -1);
  // This version cannot say what NCCL can: a choice counts if it names both.
  if (choice.algorithm >= 0 && choice.protocol >= 0) {
    *algorithm = choice.algorithm;
    *protocol = choice.protocol;
  }
  if (choice.channels > 0) *channels = choice.channels;
  return Result::Success;
}
Result chooseV3(void* context, int collective, size_t bytes, int pipeOps, float** costs,
                int algorithms, int protocols, int* channels) noexcept {
  return choose(context, collective, bytes, pipeOps, costs, algorithms, protocols, -1, channels);
}

Result openV2(size_t ranks, size_t nodes, Logger, void** context) noexcept {
  return open(context, ranks, nodes);
}
Result openV5(void** context, uint64_t, size_t ranks, size_t nodes, Logger, void*, void*) noexcept {
  return open(context, ranks, nodes);
}

constexpr const char* kName = "torchcomms";

}  // namespace
}  // namespace torchcomms::nccl_plugin

#define PLUGIN extern "C" __attribute__((visibility("default")))
namespace plugin = torchcomms::nccl_plugin;

PLUGIN const plugin::TunerV2 ncclTunerPlugin_v2{plugin::kName, plugin::openV2, plugin::chooseV2,
                                                plugin::close};
PLUGIN const plugin::TunerV3 ncclTunerPlugin_v3{plugin::kName, plugin::openV2, plugin::chooseV3,
                                                plugin::close};
PLUGIN const plugin::TunerV4 ncclTunerPlugin_v4{plugin::kName, plugin::openV2, plugin::choose,
                                                plugin::close};
PLUGIN const plugin::TunerV5 ncclTunerPlugin_v5{plugin::kName, plugin::openV5, plugin::choose,
                                                plugin::close};

/// Has NCCL take this way for all operations of the process from now on; -1: as the table says.
PLUGIN void torchcomms_nccl_force(int algorithm, int protocol, int channels) {
  plugin::gForced.algorithm = algorithm;
  plugin::gForced.protocol = protocol;
  plugin::gForced.channels = channels;
  plugin::gForced.taken = plugin::gForced.refused = 0;
}
/// Since then: how many operations went that way, and how many cannot.
PLUGIN void torchcomms_nccl_forced(uint64_t* taken, uint64_t* refused) {
  *taken = plugin::gForced.taken;
  *refused = plugin::gForced.refused;
}
