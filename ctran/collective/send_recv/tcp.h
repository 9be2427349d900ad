#pragma once

#include <cstdint>
#include <map>

#include "ctran/collective/collective.h"
#include "ctran/collective/task.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {

/// This rank's end of the messages to, or from, one peer; those of one tag are matched in order.
class TcpChannel {
 public:
  TcpChannel(TcpTransport& transport, int rank, int peer)
      : transport(transport), rank(rank), peer(peer) {}

  TcpTransport& transport;
  const int rank;
  const int peer;
  FrameMemory frame;
  std::map<int, uint64_t> sequences;  ///< of the next message, by tag
};

Task sendTcp(TcpChannel& channel, const Collective& c);
Task recvTcp(TcpChannel& channel, const Collective& c);

}  // namespace ctran
