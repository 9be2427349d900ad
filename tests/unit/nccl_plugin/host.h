// NCCL, as far as it loads plug-ins: the calls of each version, with descriptions laid out as in
// NCCL 2.28's own debug information, not as our headers say.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace torchcomms::nccl_plugin::testing {

/// As a description lies in memory.
class Bytes {
 public:
  template <typename T>
  Bytes& put(size_t offset, T value) {
    std::memcpy(bytes_ + offset, &value, sizeof value);
    return *this;
  }
  void* data() { return bytes_; }

 private:
  alignas(8) std::byte bytes_[128] = {};
};

struct Operation {
  const char* function = "AllReduce";
  int functionNumber = 4;
  const char* type = "ncclFloat32";
  int typeNumber = 7;
  size_t count = 1000;
  int root = 0;  // or the peer
  const char* algorithm = "RING";
  int algorithmNumber = 1;
  const char* protocol = "SIMPLE";
  int protocolNumber = 2;
  int channels = 2;
};

/// A communicator of NCCL, which has found the plug-in of one version.
class ProfiledComm {
 public:
  ProfiledComm(int version, int rank, int size, uint64_t comm, const char* name)
      : version_(version), rank_(rank), comm_(comm), name_(name) {
    static void* const library = ::dlopen(NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    plugin_ = static_cast<Plugin*>(
        ::dlsym(library, ("ncclProfiler_v" + std::to_string(version)).c_str()));
    if (version <= 3) {
      result_ = reinterpret_cast<int (*)(void**, int*)>(plugin_->init)(&context_, &mask_);
    } else if (version == 4) {
      using Init = int (*)(void**, int*, const char*, uint64_t, int, int, int, void*);
      result_ = reinterpret_cast<Init>(plugin_->init)(&context_, &mask_, name, comm, 1, size, rank,
                                                      nullptr);
    } else {
      using Init = int (*)(void**, uint64_t, int*, const char*, int, int, int, void*);
      result_ = reinterpret_cast<Init>(plugin_->init)(&context_, comm, &mask_, name, 1, size, rank,
                                                      nullptr);
    }
  }
  ~ProfiledComm() { finalize(); }
  ProfiledComm(const ProfiledComm&) = delete;
  ProfiledComm& operator=(const ProfiledComm&) = delete;

  int result() const { return result_; }
  int mask() const { return mask_; }
  const char* name() const { return plugin_->name; }
  void finalize() {
    if (!isFinal_) plugin_->finalize(context_);
    isFinal_ = true;
  }

  void* collective(const Operation& op = {}) {
    Bytes event = head(2, nullptr);
    size_t at = 24;
    if (version_ <= 3) at = named(event);
    event.put<uint64_t>(at, 17);  // the number of the call, which NCCL counts by function
    switch (version_) {
      case 1:
        event.put<uint8_t>(48, static_cast<uint8_t>(op.functionNumber)).put(72, op.count);
        event.put(80, op.root).put<uint8_t>(84, static_cast<uint8_t>(op.typeNumber));
        event.put<uint8_t>(104, static_cast<uint8_t>(op.channels)).put<uint8_t>(105, 8);
        event.put<uint8_t>(106, static_cast<uint8_t>(op.algorithmNumber));
        event.put<uint8_t>(107, static_cast<uint8_t>(op.protocolNumber));
        break;
      case 2:
        event.put(48, op.function).put(72, op.count).put(80, op.root).put(88, op.type);
        event.put<uint8_t>(104, static_cast<uint8_t>(op.channels)).put<uint8_t>(105, 8);
        event.put(112, op.algorithm).put(120, op.protocol);
        break;
      case 3:
        event.put(48, op.function).put(72, op.count).put(80, op.root).put(88, op.type);
        event.put<uint8_t>(96, static_cast<uint8_t>(op.channels)).put<uint8_t>(97, 8);
        event.put(104, op.algorithm).put(112, op.protocol);
        break;
      default:
        event.put(32, op.function).put(56, op.count).put(64, op.root).put(72, op.type);
        event.put<uint8_t>(80, static_cast<uint8_t>(op.channels)).put<uint8_t>(81, 8);
        event.put(88, op.algorithm).put(96, op.protocol);
    }
    return start(event);
  }

  void* message(const Operation& op) {
    Bytes event = head(4, nullptr);
    switch (version_) {
      case 1:
        named(event);
        event.put<uint8_t>(40, static_cast<uint8_t>(op.functionNumber)).put(64, op.count);
        event.put<uint8_t>(56, static_cast<uint8_t>(op.typeNumber)).put(72, op.root);
        break;
      case 2:
      case 3:
        named(event);
        event.put(40, op.function).put(56, op.type).put(64, op.count).put(72, op.root);
        break;
      default:
        event.put(24, op.function).put(40, op.type).put(48, op.count).put(56, op.root);
        event.put<uint8_t>(60, static_cast<uint8_t>(op.channels));
    }
    return start(event);
  }

  /// A channel of an operation's kernel runs.
  void* kernel(void* operation, int channel) {
    Bytes event = head(64, operation);
    event.put<uint8_t>(24, static_cast<uint8_t>(channel)).put<uint64_t>(32, 1'000'000);
    return start(event);
  }

  void* other(uint64_t type) {
    Bytes event = head(type, nullptr);
    return start(event);
  }

  void stop(void* handle) {
    if (handle != nullptr) plugin_->stopEvent(handle);
  }
  void stopWhatever(void* handle) { plugin_->stopEvent(handle); }
  void state(void* handle) {
    Bytes arguments;
    plugin_->recordEventState(handle, 22, arguments.data());
  }

 private:
  struct Plugin {
    const char* name;
    void (*init)();
    int (*startEvent)(void*, void**, void*);
    int (*stopEvent)(void*);
    int (*recordEventState)(void*, int, void*);
    int (*finalize)(void*);
  };

  Bytes head(uint64_t type, void* parent) const {
    Bytes event;
    if (version_ >= 5) {
      event.put(0, type);
    } else {
      event.put(0, static_cast<uint8_t>(type));
    }
    return event.put(8, parent).put(16, rank_);
  }
  /// Returns where the next field is.
  size_t named(Bytes& event) const {
    event.put(24, name_).put(32, comm_);
    return 40;
  }
  void* start(Bytes& event) {
    void* handle = &event;  // which the plug-in has to overwrite
    plugin_->startEvent(context_, &handle, event.data());
    return handle;
  }

  const int version_, rank_;
  const uint64_t comm_;
  const char* name_;
  Plugin* plugin_ = nullptr;
  void* context_ = nullptr;
  int mask_ = -1, result_ = -1;
  bool isFinal_ = false;
};

/// NCCL's table of costs, and what a tuner of one version makes of it.
class TunedComm {
 public:
  static constexpr int kAlgorithms = 7, kProtocols = 3;

  TunedComm(int version, size_t ranks, size_t nodes) : version_(version) {
    static void* const library = ::dlopen(NCCL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    plugin_ = static_cast<Plugin*>(
        ::dlsym(library, ("ncclTunerPlugin_v" + std::to_string(version)).c_str()));
    if (version <= 4) {
      using Init = int (*)(size_t, size_t, void*, void**);
      result = reinterpret_cast<Init>(plugin_->init)(ranks, nodes, nullptr, &context_);
    } else {
      using Init = int (*)(void**, uint64_t, size_t, size_t, void*, void*, void*);
      result = reinterpret_cast<Init>(plugin_->init)(&context_, 1, ranks, nodes, nullptr, nullptr,
                                                     nullptr);
    }
    for (float& cost : costs) cost = 100;
  }
  ~TunedComm() { plugin_->end(context_); }
  TunedComm(const TunedComm&) = delete;
  TunedComm& operator=(const TunedComm&) = delete;

  void ask(int collective, size_t bytes) {
    int algorithm = -1, protocol = -1;
    auto** const table = reinterpret_cast<float**>(costs);
    if (version_ == 2) {
      using Ask = int (*)(void*, int, size_t, int, int, int, int*, int*, int*);
      result = reinterpret_cast<Ask>(plugin_->ask)(context_, collective, bytes, 0, 0, 1, &algorithm,
                                                   &protocol, &channels);
      if (algorithm >= 0 && protocol >= 0) costs[algorithm * kProtocols + protocol] = 0;
    } else if (version_ == 3) {
      using Ask = int (*)(void*, int, size_t, int, float**, int, int, int*);
      result = reinterpret_cast<Ask>(plugin_->ask)(context_, collective, bytes, 1, table,
                                                   kAlgorithms, kProtocols, &channels);
    } else {
      using Ask = int (*)(void*, int, size_t, int, float**, int, int, int, int*);
      result = reinterpret_cast<Ask>(plugin_->ask)(context_, collective, bytes, 1, table,
                                                   kAlgorithms, kProtocols, 0, &channels);
    }
  }

  /// What NCCL then takes: the cheapest of those that it can do.
  int cheapest() const {
    int best = -1;
    for (int i = 0; i < kAlgorithms * kProtocols; ++i) {
      if (costs[i] >= 0 && (best < 0 || costs[i] < costs[best])) best = i;
    }
    return best;
  }
  static int at(int algorithm, int protocol) { return algorithm * kProtocols + protocol; }

  int result = -1, channels = 0;
  float costs[kAlgorithms * kProtocols];

 private:
  struct Plugin {
    const char* name;
    void (*init)();
    void (*ask)();
    int (*end)(void*);
  };
  const int version_;
  Plugin* plugin_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace torchcomms::nccl_plugin::testing
