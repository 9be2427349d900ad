#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "ctran/trace/operation_ring.h"
#include "ctran/transport/condition.h"

namespace ctran {

class Transport;

/// The queues of operations that messages belong to: collectives, and sends with receives.
inline constexpr uint32_t kCollectiveQueue = 0, kMessageQueue = 1, kQueues = 2;

/// The name of a message between two ranks: the operation of a queue that it belongs to, and which
/// of the messages of that operation it is. Each end binds memory to the name, so no address
/// travels.
struct MessageName {
  uint32_t queue = kCollectiveQueue;
  uint32_t buffer = 0;
  uint64_t sequence = 0;
  auto operator<=>(const MessageName&) const = default;
};

/// A transfer between this rank and a peer. It has ended when its memory may be used again.
class Transfer {
 public:
  Transfer(Transport& transport, int peer, size_t bytes)
      : transport(transport), peer(peer), bytes(bytes) {}
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  virtual ~Transfer() = default;

  /// Returns the condition that the transfer has ended, successfully or not.
  Condition ended() const {
    return {reinterpret_cast<const std::byte*>(&progress), 0, kEnded, peer, peer + 1};
  }

  Transport& transport;
  const int peer;
  const size_t bytes;
  std::atomic<uint64_t> progress{0};

  static constexpr uint64_t kEnded = 1;
};

/// What one end of a message tells if the other end does not match it.
struct OtherEnd {
  uint64_t bytes = 0;
  OperationRecord operation;
};

/// One end of a message, which exists as long as its memory is bound. Destroying it early, as a
/// failed operation does, releases the memory.
class Transmission : public Transfer {
 public:
  Transmission(Transport& transport, const MessageName& name, int peer, size_t bytes,
               const OperationRecord& operation)
      : Transfer(transport, peer, bytes), name(name), operation(operation) {}

  const MessageName name;
  const OperationRecord operation;
  size_t moved = 0;      ///< bytes moved; guarded by the transport
  bool isTold = false;   ///< the peer knows of the message; guarded by the transport
  bool isWrong = false;  ///< the sizes of both ends differ; known once it has ended
  OtherEnd other;        ///< known once it has ended
};

/// A message to be received. It has ended when all of it has arrived.
class Inbound final : public Transmission {
 public:
  Inbound(Transport& transport, const MessageName& name, int peer, std::byte* data, size_t bytes,
          const OperationRecord& operation)
      : Transmission(transport, name, peer, bytes, operation), data(data) {}
  ~Inbound() override;
  std::byte* const data;
};

/// A message to be sent. It has ended when its memory may be used again; it may not have arrived
/// yet.
class Outbound final : public Transmission {
 public:
  Outbound(Transport& transport, const MessageName& name, int peer, const std::byte* data,
           size_t bytes, const OperationRecord& operation)
      : Transmission(transport, name, peer, bytes, operation), data(data) {}
  ~Outbound() override;
  const std::byte* const data;
};

}  // namespace ctran
