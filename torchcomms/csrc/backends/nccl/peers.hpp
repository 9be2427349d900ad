#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace torch::comms::nccl {

/// Notices that a process of this host is dead; a GPU that waits for its data would wait for ever.
/// Each rank says through the store of the communicator which process it is, and the engine's
/// watcher tells the others of its host when that process ends. Safe from any thread.
class Peers {
 public:
  Peers(c10::intrusive_ptr<c10d::Store> store, int rank) : store_(std::move(store)), rank_(rank) {}
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  /// Says who this rank is. Called before others may look.
  void introduce();
  /// Says that this rank will not be missed. Throws what the store throws.
  void leave(c10d::Store& store);
  /// Learns which ranks are on this host, if that has not been done. Called after all have
  /// introduced themselves. Throws what the store throws.
  void meet(c10d::Store& store);
  /// Returns the ranks of this host that are dead and have not left. Throws what the store throws.
  std::vector<int> findDead(c10d::Store& store);

 private:
  /// The ranks whose processes have ended. The watcher may report one after Peers has gone.
  class Ended {
   public:
    void add(int rank);
    std::vector<int> ranks() const;

   private:
    mutable std::mutex mutex_;
    std::vector<int> ranks_;
  };

  void remember(const std::string& introduction);
  static bool hasLeft(c10d::Store& store, int rank);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  std::mutex mutex_;
  bool met_ = false;
  std::vector<uint64_t> watches_;  ///< one for each other rank of this host
  const std::shared_ptr<Ended> ended_ = std::make_shared<Ended>();
};

}  // namespace torch::comms::nccl
