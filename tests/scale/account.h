#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ctran::testing {

struct Arguments {
  int ranks = 1024;
  int perHost = 64;
  int processes = 2;
  int groups = 2;     ///< that all ranks split into
  int seconds = 300;  ///< for each part
};

/// What a rank sent, and asked the store, in one part of its life.
struct Cost {
  double seconds = 0;
  uint64_t messages = 0, bytes = 0, storeCalls = 0;
};

/// The parts, between which all ranks wait for all.
enum class Part { Create, Split, Fail };
inline constexpr int kParts = 3;

/// Memory of all processes: who has come how far, and the costs of each rank.
class Stage {
 public:
  static constexpr int kMaxProcesses = 64;

  static Stage& make(const Arguments& arguments);

  /// Waits until all ranks have come here. Throws if one has failed.
  void meet();
  /// Looks at the memory of this process between the first two meetings, and after the second: its
  /// ranks wait for that.
  void watchMemory(int process, int ranks);
  void awaitLook(int number);
  void report(const Arguments& arguments) const;

  Cost& cost(Part part, int rank) { return costs()[static_cast<int>(part) * ranks_ + rank]; }

  std::atomic<bool> failed{false};

 private:
  Cost* costs() const;
  void print(const char* what, Part part) const;
  bool waitFor(uint64_t meeting) const;

  int ranks_ = 0;
  int processes_ = 0;
  std::atomic<uint64_t> met_{0};
  std::atomic<int> looked_{0};
  std::array<double, kMaxProcesses> kilobytes_{}, heap_{};  // of each rank of a process
};

}  // namespace ctran::testing
