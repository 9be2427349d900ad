#pragma once

#include <memory>

#include "ctran/engine/lane_communicator.h"
#include "ctran/engine/tcp_lane.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {

/// A communicator whose ranks are on several hosts.
class HostsCommunicator final : public LaneCommunicator,
                                private Driver,
                                private TcpTransport::Listener {
 public:
  HostsCommunicator(const CommunicatorOptions& options, Hosts hosts);
  ~HostsCommunicator() override;

  /// Waits until all ranks are here.
  void start(WaitHooks* hooks);

  bool isAborted() const override;
  void leave() override;

  TcpTransport& transport() { return transport_; }

 private:
  Lane& collectives() override { return collectives_; }
  std::unique_ptr<Lane> makeChannel(int peer, bool sends) override;
  bool spansHosts() const override { return true; }

  bool poll() override { return transport_.poll(); }
  void arm() override;
  void tell(const Error& error) override { transport_.tell(error); }
  void failed(const Error& error) override { core_.fail(error); }

  Board board_;
  mutable TcpTransport transport_;
  TcpCollectiveLane collectives_;
  uint64_t watch_ = 0;
};

}  // namespace ctran
