#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "ctran/collective/collective.h"
#include "ctran/collective/send_recv/receive.h"
#include "ctran/collective/task.h"
#include "ctran/transport/transport.h"

namespace ctran {

/// The sending end of the messages to one peer. Messages of one tag are matched in order.
class NetChannel {
 public:
  NetChannel(Transport& transport, int rank, int peer)
      : transport(transport), rank(rank), peer(peer) {}

  Transport& transport;
  const int rank;
  const int peer;
  FrameMemory frame;
  std::map<int, uint64_t> sequences;  ///< of the next message, by tag
};

Task sendOverNet(NetChannel& channel, const Collective& c);

/// The receiving end of the messages from one peer.
class NetMailbox final : public Mailbox {
 public:
  NetMailbox(Transport& transport, int rank, int peer)
      : transport_(transport), rank_(rank), peer_(peer) {}

  std::unique_ptr<Reception> reception() override;

 private:
  class Receiver;

  Transport& transport_;
  const int rank_;
  const int peer_;
  std::mutex mutex_;                   // guards what follows
  std::map<int, uint64_t> sequences_;  // of the next message, by tag
};

}  // namespace ctran
