#pragma once

#include "ctran/collective/collective.h"
#include "ctran/collective/task.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {

/// This rank's end of the messages to, or from, one peer, which are matched in order.
class TcpChannel {
 public:
  TcpChannel(TcpTransport& transport, int rank, int peer)
      : transport(transport), rank(rank), peer(peer) {}

  TcpTransport& transport;
  const int rank;
  const int peer;
  FrameMemory frame;
  uint64_t sequence = 0;
};

Task sendTcp(TcpChannel& channel, const Collective& c);
Task recvTcp(TcpChannel& channel, const Collective& c);

}  // namespace ctran
