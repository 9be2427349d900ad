#pragma once

#include <algorithm>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ctran/gpu/device/block.cuh"
#include "ctran/gpu/device/operation.cuh"
#include "ctran/gpu/device/team.cuh"

/// Ranks, blocks and threads of the device code as threads of the host. A rank's "stream" runs one
/// kernel after the other; ranks run freely against each other. Under ThreadSanitizer a slot that
/// is rewritten while somebody may read it is a reported race.
namespace ctran::device {

class DeviceWorld {
 public:
  static constexpr u32 kFlows = 3;
  static constexpr u32 kStepBytes = 32768;
  static constexpr u64 kLineBytes = 16384;

  struct Grid {
    u32 blocks;
    u32 threads;
  };

  /// Every rank gets room for grids of up to `most`. Flows start at `firstStep`.
  DeviceWorld(u32 ranks, u64 slotBytes, u32 firstEpoch, Grid most, u32 firstStep = 0)
      : most_(most), controls_(ranks), reports_(ranks), states_(ranks), guards_(ranks) {
    for (u32 rank = 0; rank < ranks; ++rank) {
      scratch_.push_back(std::make_unique<Word16[]>(kRegions * ranks * slotBytes / 16));
      lines_.push_back(std::make_unique<Word16[]>(kRegions * ranks * kLineBytes / 16));
      steps_.push_back(std::make_unique<Word16[]>(ranks * kFlows * kDepth * kStepBytes / 16));
      flags_.push_back(std::make_unique<u32[]>(kFlagBytes / 4));
      for (u32& epoch : states_[rank].epoch) epoch = firstEpoch;
      for (u32 k = 0; k < kFlags; ++k) flags_[rank][k * kFlagWords] = firstStep;
      for (u32 peer = 0; peer < kMaxRanks; ++peer) {
        std::fill_n(states_[rank].sent[peer], kMaxFlows, firstStep);
        std::fill_n(states_[rank].received[peer], kMaxFlows, firstStep);
        for (u32 barrier = 0; barrier < kBarriers; ++barrier) {
          states_[rank].met[barrier][peer] = firstStep;
        }
      }
      guards_[rank].resize(most.blocks);
      teams_.push_back({});
    }
    for (u32 rank = 0; rank < ranks; ++rank) {
      Team& team = teams_[rank];
      team.rank = rank;
      team.size = ranks;
      team.slotBytes = slotBytes;
      team.lineBytes = kLineBytes;
      team.flows = kFlows;
      team.stepBytes = kStepBytes;
      for (u32 peer = 0; peer < ranks; ++peer) {
        team.scratch[peer] = reinterpret_cast<char*>(scratch_[peer].get());
        team.lines[peer] = reinterpret_cast<char*>(lines_[peer].get());
        team.steps[peer] = reinterpret_cast<char*>(steps_[peer].get());
        team.flags[peer] = flags_[peer].get();
      }
      controls_[rank].timeoutNs = 20000000000;  // a protocol that loses packets fails, and in time
      team.state = &states_[rank];
      team.control = &controls_[rank];
      team.report = &reports_[rank];
    }
  }

  const Team& team(u32 rank) const { return teams_[rank]; }
  Control& control(u32 rank) { return controls_[rank]; }
  const Report& report(u32 rank) const { return reports_[rank]; }
  const State& state(u32 rank) const { return states_[rank]; }

  /// Runs `kernels` operations on each of `ranks`: `kernel(rank, k)` with the grid `grid(k)`.
  void run(const std::vector<u32>& ranks, u32 kernels, const std::function<Grid(u32)>& grid,
           const std::function<void(u32 rank, u32 k, const Block&)>& kernel) {
    std::vector<std::thread> threads;
    for (u32 rank : ranks) threads.emplace_back([&, rank] { stream(rank, kernels, grid, kernel); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  /// One rank. Its threads meet between kernels, as a stream orders them.
  void stream(u32 rank, u32 kernels, const std::function<Grid(u32)>& grid,
              const std::function<void(u32, u32, const Block&)>& kernel) {
    const u32 all = most_.blocks * most_.threads;
    std::barrier boundary(all);
    std::vector<std::unique_ptr<Barrier>> barriers(kernels * most_.blocks);
    for (u32 k = 0; k < kernels; ++k) {
      for (u32 b = 0; b < grid(k).blocks; ++b) {
        barriers[k * most_.blocks + b] = std::make_unique<Barrier>(grid(k).threads);
      }
    }
    std::vector<std::thread> threads;
    for (u32 t = 0; t < all; ++t) {
      threads.emplace_back([&, t] {
        for (u32 k = 0; k < kernels; ++k) {
          const Grid shape = grid(k);
          const u32 b = t / shape.threads;
          if (b < shape.blocks) {
            kernel(rank, k,
                   {t % shape.threads, shape.threads, b, shape.blocks, &guards_[rank][b],
                    barriers[k * most_.blocks + b].get()});
          }
          boundary.arrive_and_wait();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  Grid most_;
  std::vector<Control> controls_;
  std::vector<Report> reports_;
  std::vector<State> states_;
  std::vector<std::vector<Guard>> guards_;
  std::vector<std::unique_ptr<Word16[]>> scratch_;
  std::vector<std::unique_ptr<Word16[]>> lines_;
  std::vector<std::unique_ptr<Word16[]>> steps_;
  std::vector<std::unique_ptr<u32[]>> flags_;
  std::vector<Team> teams_;
};

}  // namespace ctran::device
