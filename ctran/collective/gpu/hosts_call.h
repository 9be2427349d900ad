#pragma once

#include <cstddef>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// Page-locked memory of the host, at the addresses that the host and the GPUs use.
struct Staging {
  std::byte* host = nullptr;
  std::byte* device = nullptr;

  Staging operator+(size_t bytes) const { return {host + bytes, device + bytes}; }
};

/// One call on GPUs of several domains, while it is put on a stream. Its algorithm composes it of
/// these functions. All parts go on the stream, in the order of the calls; nothing here waits.
///
/// A part between domains is handed to a thread of the host, and runs while the stream does what
/// comes next, until the stream waits for it.
class GpuHostsCall {
 public:
  virtual ~GpuHostsCall() = default;

  /// The domains: ranks whose GPUs reach each other. In this HostMap a domain stands for a host.
  const HostMap& domains;
  const int rank;
  /// The bytes that a rank moves between domains in one step of a pipeline.
  const size_t stepBytes;

  /// Runs a collective by kernels of this rank's domain; ranks are numbered as in the domain.
  virtual void inDomain(const Collective& collective) = 0;
  /// Returns memory of at least `bytes`, for this call alone. Call this or the next function at
  /// most once.
  virtual Staging stage(size_t bytes) = 0;
  /// Returns memory for collectives that only move data on rails: all_gather, all_to_all and
  /// broadcast. If the network reaches the memory of GPUs, this is memory of the GPU; then `host`
  /// has the same address, which `start` needs, and must not be read.
  virtual Staging stageOnRail(size_t bytes) = 0;
  /// Copies between GPU and host, or on the GPU.
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  /// Starts a collective (on its rail, if it says so), or messages that run at the same time, among
  /// the ranks over the network, in memory of the host. `op.factorAt` is in memory of the host.
  /// Returns what has to be passed to `await`.
  virtual size_t start(std::vector<Collective> between) = 0;
  virtual void await(size_t started) = 0;

  bool onRail() const { return domains.index() < domains.rails(); }

 protected:
  GpuHostsCall(const HostMap& domains, int rank, size_t stepBytes)
      : domains(domains), rank(rank), stepBytes(stepBytes) {}
};

/// Runs collectives through the memory of the host: the rank's data goes there, the network runs
/// the collective, or the messages, and the results come back.
void passThroughHost(GpuHostsCall& call, const std::vector<Collective>& collectives);

}  // namespace ctran
