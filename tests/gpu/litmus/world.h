#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ctran/gpu/device/team.cuh"
#include "tests/gpu/litmus/gpus.h"

/// All ranks of a communicator in one process: rank r on GPU r modulo the number of GPUs.
namespace litmus {

using ctran::device::Control;
using ctran::device::Report;
using ctran::device::State;
using ctran::device::Team;

struct Variant {
  std::string element = "BFloat16";
  std::string op = "Sum";
  int ranks = 4;
  int payloadWords = 3;
  unsigned scrubEvery = 1u << 30;

  std::string key() const;
  std::string cubin() const;  ///< both all-reduce kernels
};

/// How one call of a kernel is launched.
struct Shape {
  bool twoShot = false;
  unsigned blocks = 1;
  unsigned threads = 128;
};

class World {
 public:
  World(Gpus& gpus, int ranks, unsigned firstEpoch = 0, uint64_t timeoutNs = 2000000000);

  int size() const { return static_cast<int>(teams_.size()); }
  Gpu& gpuOf(int rank) { return gpus_[rank % gpus_.count()]; }
  Stream streamOf(int rank) { return gpuOf(rank).stream(rank / gpus_.count()); }
  DevicePtr input(int rank) const { return area(rank) + kInputAt; }
  DevicePtr output(int rank) const { return area(rank) + kOutputAt; }
  Control& control(int rank) { return *controls_[rank]; }
  Report& report(int rank) { return *reports_[rank]; }

  /// Packets of 16 bytes that a slot holds.
  size_t slotPackets() const { return teams_[0].slotBytes / 16; }

  void load(const Variant& variant);
  Result launch(const Variant& variant, const Shape& shape, int rank, DevicePtr in, DevicePtr out,
                uint64_t count, double factor = 1);
  void fill(DevicePtr at, int rank, unsigned word, size_t bytes);
  void synchronize();

  static constexpr size_t kBufferBytes = 5 << 20;

 private:
  static constexpr size_t kArea = 32 << 20;
  static constexpr size_t kScratchAt = 1 << 20;
  static constexpr size_t kInputAt = 21 << 20;
  static constexpr size_t kOutputAt = kInputAt + kBufferBytes;

  DevicePtr area(int rank) const {
    return gpus_.at(rank % gpus_.count(), rank / gpus_.count() * kArea);
  }

  Gpus& gpus_;
  MappedHostMemory host_;
  std::vector<Team> teams_;
  std::vector<Control*> controls_;
  std::vector<Report*> reports_;
  std::map<std::string, std::vector<Function>> kernels_;  // [gpu * 2 + twoShot]
};

}  // namespace litmus
