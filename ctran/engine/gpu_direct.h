#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/engine/communicator.h"
#include "ctran/gpu/driver.h"
#include "ctran/rdma/transport.h"

namespace ctran {

/// Returns whether a collective only moves data on the rails. GpuDirect serves those.
bool movesOnRails(CollectiveKind kind);

/// Parses the key that a rank has given for its area of `bytes` bytes. Throws Error, which names
/// the rank, if it is no key, or the key of memory of another size.
RdmaRemote offeredArea(std::string_view key, size_t bytes, int rank);

/// GPUDirect RDMA on the rails of several domains: the RDMA devices read what goes between the
/// domains from the memory of the sender's GPU, and write it into the memory of the receiver's.
///
/// Each rank has one area in its GPU's memory, registered once. Streams copy outgoing data into it
/// and take incoming data from it. Tensors are never registered, so any memory will do. A step uses
/// the same places in the areas of all ranks, so they exchange no addresses: before a step the
/// ranks of a rail have a barrier, a collective of a few bytes over the network, and then each
/// writes its parts into the areas of the others.
///
/// The barrier makes it safe to write there: a rank comes to a step when its stream hands the step
/// over, which is after everything that reads what earlier steps received.
///
/// Threads: one thread at a time.
class GpuDirect {
 public:
  /// Creates the object. Collective over the ranks of `network`, whose hosts are the domains. An
  /// area holds four steps of `stepBytes`. Returns null, on all ranks, if some rank cannot take
  /// part or has it turned off; `whyNot` then says which rank, and why. Throws Error(Unsupported)
  /// instead if some rank insists (CTRAN_GPU_DIRECT=on), and any error that breaks the network.
  static std::shared_ptr<GpuDirect> create(std::shared_ptr<Communicator> network, int device,
                                           size_t stepBytes, WaitHooks* hooks, std::string& whyNot);

  ~GpuDirect();
  GpuDirect(const GpuDirect&) = delete;
  GpuDirect& operator=(const GpuDirect&) = delete;

  /// The first bytes of this rank's area, in the memory of its GPU.
  std::byte* area(size_t bytes) const;
  /// Runs an all_gather, an all_to_all or a broadcast of each rail, in the areas: `c` is as
  /// Communicator::run takes it, with `onRail`. The rank's own block of an output is not written.
  /// When it returns, received data is visible to all that the GPU does later, and sent data may be
  /// overwritten. If it throws an Error, the communicator can no longer be used.
  void run(const Collective& c, std::chrono::nanoseconds timeout);

  /// Names the RDMA devices of this rank, those nearest to its GPU: "mlx5_0:1, mlx5_1:1". Empty if
  /// the rank has no rail.
  std::string devices() const;

 private:
  struct Area;
  struct Offer;
  struct Peer;
  /// What one step moves between this rank and one peer: places in the areas.
  struct Part {
    size_t from = 0, to = 0;  ///< offsets in this rank's area, and in the peer's
    size_t bytes = 0;         ///< number of bytes that this rank sends
    bool comes = false;       ///< the peer sends something
  };
  using Clock = std::chrono::steady_clock;
  using PartOf = std::function<Part(const Peer&)>;

  GpuDirect(std::shared_ptr<Communicator> network, int device, size_t stepBytes);
  std::string agree(WaitHooks* hooks, const std::function<void()>& step) const;
  // The steps of creation.
  void look();
  void open();
  void connect(WaitHooks* hooks);
  void probe(WaitHooks* hooks);

  void meet(const Collective& c, std::chrono::nanoseconds timeout);
  void exchange(const PartOf& partOf, Clock::time_point until);
  void await(const RdmaFuture& end, const Peer& peer, Clock::time_point until) const;
  void flush() const;
  size_t offsetOf(const std::byte* place, size_t bytes) const;

  const std::shared_ptr<Communicator> network_;
  const HostMap& domains_;
  const int device_;
  const size_t stepBytes_;
  const uint64_t process_;
  bool flushes_ = false;
  // Members are destroyed in reverse order, so that the devices let go of the area first: queue
  // pairs end, then the registration, then the area goes.
  std::unique_ptr<Area> area_;
  std::shared_ptr<RdmaRegistration> registration_;
  std::vector<size_t> nearest_;  // devices
  std::vector<Peer> peers_;
  uint64_t steps_ = 0;
};

}  // namespace ctran
