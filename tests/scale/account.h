#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace ctran::testing {

struct Arguments {
  int ranks = 1024;
  int perHost = 16;
  int processes = 0;  ///< 0: as few as have descriptors for all ranks
  int groups = 2;     ///< that all ranks split into
  int seconds = 300;  ///< for each part
};

/// What a rank's own thread sent, and asked the store, in one part of its life.
struct Cost {
  double seconds = 0;
  uint64_t messages = 0, bytes = 0, storeCalls = 0;
};

/// The parts. All ranks meet before and after each.
enum class Part { Create, Split, Fail };
inline constexpr int kParts = 3;

/// Memory of all processes: who has come how far, and the costs of each rank.
class Stage {
 public:
  static constexpr int kMaxProcesses = 64;
  static constexpr int kBarriers = 2 * kParts;

  static Stage& make(const Arguments& arguments);

  /// Waits until all ranks have come here, and every process has looked at itself. Throws if that
  /// takes too long, naming a rank that has not come, or if a rank has failed.
  void meet(int rank);
  /// What a process does besides its ranks: looks at itself when all ranks meet.
  void watch(int process);
  /// A rank cannot go on: nobody waits for it any more.
  void fail();
  bool hasFailed() const { return failed_.load(); }

  Cost& cost(Part part, int rank) { return ranks()[rank].costs[static_cast<size_t>(part)]; }
  /// Changes whenever something is stored under the key: to be slept on.
  std::atomic<uint32_t>& changesOf(const std::string& key);

  void report(const Arguments& arguments) const;

 private:
  struct Rank {
    std::array<Cost, kParts> costs;
    std::atomic<uint32_t> barriers{0};  // that it has come to
  };
  /// Of a process, with all that its engine's own threads do.
  struct Look {
    uint64_t messages = 0, bytes = 0;
    double kilobytes = 0, heapKilobytes = 0;
  };

  Rank* ranks() const { return reinterpret_cast<Rank*>(const_cast<Stage*>(this) + 1); }
  Look lookNow() const;
  void moved();
  void await(const std::function<bool()>& holds, const std::function<std::string()>& who);
  std::string missingAt(uint32_t barrier) const;
  void print(const char* what, Part part) const;
  double perRank(Part part, const std::function<double(const Look&)>& of) const;

  int ranks_ = 0;
  int processes_ = 0;
  int seconds_ = 0;
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> come_{0}, looked_{0};  // to all barriers, of ranks and of processes
  std::atomic<uint32_t> moves_{0};             // changes with these
  std::array<std::atomic<uint32_t>, 1024> changes_{};
  std::array<std::array<Look, kBarriers>, kMaxProcesses> looks_{};
};

}  // namespace ctran::testing
