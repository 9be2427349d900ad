#pragma once

#include <cstddef>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// Page-locked memory of the host, as the host sees it and as GPUs do.
struct Staging {
  std::byte* host = nullptr;
  std::byte* device = nullptr;

  Staging operator+(size_t bytes) const { return {host + bytes, device + bytes}; }
};

/// One call on GPUs of several domains, while it is put on a stream: what its algorithm composes it
/// of. All parts go on the stream, in the order in which they are asked for; nothing here waits.
///
/// A part between domains is handed to a thread of the host, and goes on while the stream does what
/// comes next, until the stream waits for it.
class GpuHostsCall {
 public:
  virtual ~GpuHostsCall() = default;

  /// The domains: ranks whose GPUs reach each other. What stands for a host in HostMap is a domain
  /// here.
  const HostMap& domains;
  const int rank;
  /// Of one step of a pipeline: bytes that a rank has between domains at a time.
  const size_t stepBytes;

  /// By kernels of this rank's domain, in the numbers of its ranks.
  virtual void inDomain(const Collective& collective) = 0;
  /// At least so many bytes, for this call alone. At most once in a call, this or the next one.
  virtual Staging stage(size_t bytes) = 0;
  /// The same for what only moves on rails: all_gather, all_to_all and broadcast. Where the network
  /// reaches the memory of GPUs that is memory of the GPU, and `host` the same address, which names
  /// it to `start` and is not to be read.
  virtual Staging stageOnRail(size_t bytes) = 0;
  /// Between GPU and host, or on the GPU.
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  /// Among the ranks over the network, in memory of the host: a collective, on its rail if it says
  /// so, or messages that run at the same time. `op.factorAt` is in memory of the host. Returns
  /// what to pass to `await`.
  virtual size_t start(std::vector<Collective> between) = 0;
  virtual void await(size_t started) = 0;

  bool onRail() const { return domains.index() < domains.rails(); }

 protected:
  GpuHostsCall(const HostMap& domains, int rank, size_t stepBytes)
      : domains(domains), rank(rank), stepBytes(stepBytes) {}
};

/// Through the memory of the host: what a rank has goes there, the network does the collective, or
/// the messages, and the results come back.
void passThroughHost(GpuHostsCall& call, const std::vector<Collective>& collectives);

}  // namespace ctran
