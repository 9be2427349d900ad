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

/// Whether rails only move data between domains, which is what GpuDirect does.
bool movesOnRails(CollectiveKind kind);

/// The area of a peer, of `bytes`, by the key that rank has given. Throws Error, which names it,
/// for what is no key, and for one of memory of another size.
RdmaRemote offeredArea(std::string_view key, size_t bytes, int rank);

/// Those that are as near to that GPU as the nearest, by their numbers.
std::vector<size_t> nearestDevices(const RdmaDevices& devices, const PciPlace& gpu);

/// GPUDirect RDMA on the rails of several domains: the RDMA devices read what goes between the
/// domains from the memory of the sender's GPU, and write it into the memory of the receiver's.
///
/// Each rank has one area in its GPU's memory, registered once, into which streams copy what goes,
/// and from which they take what has come; tensors are never registered, so any memory will do. A
/// step has the same places in the areas of all ranks, which therefore tell each other no
/// addresses: before a step the ranks of a rail meet, by a collective of a few bytes over the
/// network, and then each writes its parts into the areas of the others.
///
/// The meeting is what makes it safe to write there: a rank comes to a step when its stream hands
/// it over, and that is behind all that reads what came in earlier steps.
///
/// Threads: one at a time.
class GpuDirect {
 public:
  /// Collective over the ranks of `network`, whose hosts are the domains. An area has four steps of
  /// `stepBytes`. Null, on all ranks, if some rank cannot take part, or has it off: `whyNot` says
  /// which one, and why. Throws Error(Unsupported) instead if some rank insists
  /// (CTRAN_GPU_DIRECT=on), and what breaks the network.
  static std::shared_ptr<GpuDirect> create(std::shared_ptr<Communicator> network, int device,
                                           size_t stepBytes, WaitHooks* hooks, std::string& whyNot);

  ~GpuDirect();
  GpuDirect(const GpuDirect&) = delete;
  GpuDirect& operator=(const GpuDirect&) = delete;

  /// The first bytes of this rank's area, in the memory of its GPU.
  std::byte* area(size_t bytes) const;
  /// An all_gather, an all_to_all or a broadcast of each rail, in the areas: `c` is as
  /// Communicator::run takes it, with `onRail`. The own block of an output is not written. When it
  /// returns, what has come is visible to all that the GPU does later, and what was to go may be
  /// overwritten. Throws Error, and the communicator is of no use then.
  void run(const Collective& c, std::chrono::nanoseconds timeout);

  /// The RDMA devices of this rank, those nearest to its GPU: "mlx5_0:1, mlx5_1:1". Empty without
  /// a rail.
  std::string devices() const;

 private:
  struct Area;
  struct Offer;
  struct Peer;
  /// Of a step, with one peer: places in the areas.
  struct Part {
    size_t from = 0, to = 0;  ///< here, and there
    size_t bytes = 0;         ///< that go
    bool comes = false;       ///< something
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
  // The devices let go of the area before it goes: queue pairs end, then the registration.
  std::unique_ptr<Area> area_;
  std::shared_ptr<RdmaRegistration> registration_;
  std::vector<size_t> nearest_;  // devices
  std::vector<Peer> peers_;
  uint64_t steps_ = 0;
};

}  // namespace ctran
