#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ctran/engine/hosts_lane.h"
#include "ctran/engine/lane_communicator.h"
#include "ctran/engine/local_watch.h"
#include "ctran/topology/host_map.h"
#include "ctran/transport/transport.h"

namespace ctran {

/// A communicator whose ranks are on several hosts.
class HostsCommunicator final : public LaneCommunicator,
                                private Driver,
                                private Transport::Listener {
 public:
  /// `local`: what this host's ranks share, if any ranks share a host: see `bytesFor`.
  HostsCommunicator(const CommunicatorOptions& options, Hosts hosts, const HostMap& map,
                    HostGroup local);
  ~HostsCommunicator() override;

  /// How the ranks are spread.
  static HostMap mapOf(const Hosts& hosts, int rank);
  /// What so many ranks of a host share.
  static size_t bytesFor(int ranks);

  /// For a rank that cannot be one of them: tells the others why.
  static void cannotJoin(const CommunicatorOptions& options, Hosts hosts, const HostMap& map,
                         const Error& error);

  /// Waits until all ranks are here, and have rank 0's tuning table.
  void start(WaitHooks* hooks);

  bool isAborted() const override;
  TuningTable tune(const TuneOptions& options) override;
  void leave() override;
  std::vector<int> neighbours() const override { return map_.local(); }

  Transport& transport() { return *transport_; }
  const HostMap& map() const { return map_; }

 private:
  HostsCommunicator(const CommunicatorOptions& options, Hosts hosts, const HostMap& map,
                    HostGroup&& local, std::shared_ptr<SharedMapping> memory);

  Arena& makeArena(std::shared_ptr<SharedMapping> memory);

  Lane& collectives() override { return collectives_; }
  Explanation explainNative(CollectiveKind kind, size_t bytes, DataType type,
                            const CallHints* hints) const override;
  std::unique_ptr<Lane> makeSendLane(int peer) override;
  std::unique_ptr<Mailbox> makeMailbox(int peer) override;
  bool spansHosts() const override { return true; }
  bool sharesMemory(int peer) const { return arena_ && map_.hostOf(peer) == map_.host(); }

  bool poll() override;
  void arm() override;
  bool mayHear(int rank) override { return transport_->mayHear(rank); }
  void tell(const Error& error) override;
  void tellFailure();
  void failed(const Error& error) override { core_.fail(error); }
  void wakeUp() override { core_.wakeOwn(); }

  const HostMap map_;
  std::optional<Arena> arena_;  // where threads sleep, if it is there
  Board board_;
  const std::unique_ptr<Transport> transport_;
  HostsLane collectives_;
  LocalWatch localWatch_;
  std::mutex tellMutex_;
  std::atomic<bool> told_{false};  // to the end
  uint64_t watch_ = 0;
};

}  // namespace ctran
