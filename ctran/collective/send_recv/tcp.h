#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "ctran/collective/collective.h"
#include "ctran/collective/send_recv/receive.h"
#include "ctran/collective/task.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {

/// The sending end of the messages to one peer; those of one tag are matched in order.
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

/// The receiving end.
class TcpMailbox final : public Mailbox {
 public:
  TcpMailbox(TcpTransport& transport, int rank, int peer)
      : transport_(transport), rank_(rank), peer_(peer) {}

  std::unique_ptr<Reception> reception() override;

 private:
  class Receiver;

  TcpTransport& transport_;
  const int rank_;
  const int peer_;
  std::mutex mutex_;                   // guards what follows
  std::map<int, uint64_t> sequences_;  // of the next message, by tag
};

}  // namespace ctran
