#include "ctran/engine/local_watch.h"

#include <algorithm>
#include <utility>

#include "ctran/engine/communicator.h"
#include "ctran/engine/peer_watcher.h"
#include "ctran/engine/progress.h"
#include "ctran/engine/roll_call.h"

namespace ctran {

LocalWatch::LocalWatch(std::vector<int> names, HostGroup group)
    : names_(std::move(names)), group_(std::move(group)) {}

void LocalWatch::start(const std::shared_ptr<Communicator>& communicator) {
  const auto& processes = group_.processes;
  for (size_t r = 0; r < processes.size(); ++r) {
    const auto first = std::find(processes.begin(), processes.end(), processes[r]);
    if (processes[r] == processToken()) continue;
    if (static_cast<size_t>(first - processes.begin()) != r) continue;
    std::vector<int> ranks;  // the threads of that process
    for (size_t other = r; other < processes.size(); ++other) {
      if (processes[other] == processes[r]) ranks.push_back(names_[other]);
    }
    const std::weak_ptr<Communicator> weak = communicator;
    const auto died = [weak, ranks, pid = group_.pids[r]] {
      const auto self = weak.lock();
      if (!self) return;
      Core& core = self->core();
      try {
        std::vector<int> lost;
        for (const int rank : ranks) {
          const auto& state = core.board.control(rank).state;
          if (state.load(std::memory_order_acquire) != Board::RankState::Left) lost.push_back(rank);
        }
        if (lost.empty()) return;
        const Error error = core.fail(deathError(core, lost, pid));
        // Each rank of this host knows others elsewhere.
        if (core.progress != nullptr) core.progress->tell(error);
      } catch (...) {
        core.failCaughtHere("the news of a rank's death");
      }
      Progress::poke(Progress::When::Soon);
    };
    watches_.push_back(PeerWatcher::watch(std::move(group_.brought[r]), processes[r], died));
  }
  group_.brought.clear();
}

void LocalWatch::stop() {
  for (const uint64_t watch : watches_) PeerWatcher::unwatch(watch);
  watches_.clear();
}

}  // namespace ctran
