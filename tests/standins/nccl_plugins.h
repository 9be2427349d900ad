// The stand-in for NCCL loads plug-ins as the real one does: by the variables of NCCL, in their
// newest version that a NCCL 2.28 knows.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ctran/collective/collective.h"
#include "torchcomms/csrc/nccl_plugin/abi.h"

namespace torch::comms::nccl {

class StandInPlugins {
 public:
  StandInPlugins(const char* name, uint64_t comm, int size, int rank) {
    profiler_ =
        load<torchcomms::nccl_plugin::ProfilerV5>("NCCL_PROFILER_PLUGIN", "ncclProfiler_v5");
    if (profiler_ != nullptr) {
      profiler_->init(&profiling_, comm, &mask_, name, 1, size, rank, nullptr);
    }
    tuner_ = load<torchcomms::nccl_plugin::TunerV5>("NCCL_TUNER_PLUGIN", "ncclTunerPlugin_v5");
    if (tuner_ != nullptr) tuner_->init(&tuning_, comm, size, 1, nullptr, nullptr, nullptr);
  }
  ~StandInPlugins() {
    if (profiler_ != nullptr) profiler_->finalize(profiling_);
    if (tuner_ != nullptr) tuner_->finalize(tuning_);
  }
  StandInPlugins(const StandInPlugins&) = delete;
  StandInPlugins& operator=(const StandInPlugins&) = delete;

  /// A collective is launched: a handle of the profiler, or null.
  void* launch(const ctran::Collective& c) const {
    if (profiler_ == nullptr) return nullptr;
    torchcomms::nccl_plugin::EventV4 event{};
    const bool isMessage =
        c.kind == ctran::CollectiveKind::Send || c.kind == ctran::CollectiveKind::Recv;
    event.head.type = isMessage ? 4 : 2;
    const std::string type = typeOf(c.type);
    if (isMessage) {
      event.p2p = {functionOf(c.kind), nullptr, type.c_str(), c.count, c.root, 2};
    } else {
      const int way = wayOf(c);
      event.coll = {0,
                    functionOf(c.kind),
                    nullptr,
                    nullptr,
                    c.count,
                    c.root,
                    type.c_str(),
                    2,
                    8,
                    kAlgorithms[way / kProtocolCount],
                    kProtocols[way % kProtocolCount]};
    }
    void* handle = nullptr;
    profiler_->startEvent(profiling_, &handle, &event);
    return handle;
  }
  /// A kernel of it runs.
  void* run(void* operation) const {
    if (profiler_ == nullptr || operation == nullptr) return nullptr;
    torchcomms::nccl_plugin::EventV4 event{};
    event.head.type = 64;
    event.head.parent = operation;
    void* handle = nullptr;
    profiler_->startEvent(profiling_, &handle, &event);
    return handle;
  }
  void stop(void* handle) const {
    if (profiler_ != nullptr && handle != nullptr) profiler_->stopEvent(handle);
  }

 private:
  static constexpr int kAlgorithmCount = 2, kProtocolCount = 3;
  static constexpr const char* kAlgorithms[kAlgorithmCount] = {"TREE", "RING"};
  static constexpr const char* kProtocols[kProtocolCount] = {"LL", "LL128", "SIMPLE"};

  template <typename Plugin>
  static const Plugin* load(const char* variable, const char* symbol) {
    const char* path = std::getenv(variable);
    void* library = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? nullptr : static_cast<const Plugin*>(::dlsym(library, symbol));
  }

  static const char* functionOf(ctran::CollectiveKind kind) {
    using K = ctran::CollectiveKind;
    switch (kind) {
      case K::Broadcast:
        return "Broadcast";
      case K::AllReduce:
        return "AllReduce";
      case K::Reduce:
        return "Reduce";
      case K::AllGather:
        return "AllGather";
      case K::ReduceScatter:
        return "ReduceScatter";
      case K::AllToAll:
        return "AlltoAll";
      case K::Send:
        return "Send";
      case K::Recv:
        return "Recv";
      default:
        return "";
    }
  }
  static std::string typeOf(ctran::DataType type) {
    std::string name = "nccl" + std::string(ctran::nameOf(type));
    name[4] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[4])));
    return name;
  }

  /// A ring, in packets where there is little, unless a tuner knows better.
  int wayOf(const ctran::Collective& c) const {
    const size_t bytes = c.count * ctran::sizeOf(c.type);
    float costs[kAlgorithmCount * kProtocolCount];
    for (float& cost : costs) cost = 2;
    costs[1 * kProtocolCount + (bytes < 65536 ? 0 : 2)] = 1;
    int channels = 0;
    const int number = numberOf(c.kind);
    if (tuner_ != nullptr && number >= 0) {
      tuner_->getCollInfo(tuning_, number, bytes, 1, reinterpret_cast<float**>(costs),
                          kAlgorithmCount, kProtocolCount, 0, &channels);
    }
    int best = 0;
    for (int i = 1; i < kAlgorithmCount * kProtocolCount; ++i) {
      if (costs[i] < costs[best]) best = i;
    }
    return best;
  }
  static int numberOf(ctran::CollectiveKind kind) {
    using K = ctran::CollectiveKind;
    switch (kind) {
      case K::Broadcast:
        return 0;
      case K::Reduce:
        return 1;
      case K::AllGather:
        return 2;
      case K::ReduceScatter:
        return 3;
      case K::AllReduce:
        return 4;
      default:
        return -1;
    }
  }

  const torchcomms::nccl_plugin::ProfilerV5* profiler_ = nullptr;
  const torchcomms::nccl_plugin::TunerV5* tuner_ = nullptr;
  void *profiling_ = nullptr, *tuning_ = nullptr;
  int mask_ = 0;
};

}  // namespace torch::comms::nccl
