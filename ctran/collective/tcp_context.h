#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ctran/collective/blocks.h"
#include "ctran/collective/collective.h"
#include "ctran/collective/task.h"
#include "ctran/reduce/reduce.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {

class TcpContext;

/// A message of a collective. `co_await` it; that throws Error(Mismatch) if the peer is in another
/// collective than this rank. An empty message is not sent, and has always ended.
template <class End>
class TcpMessage {
 public:
  TcpMessage() = default;
  TcpMessage(TcpContext& context, std::unique_ptr<End> end)
      : context_(&context), end_(std::move(end)) {}
  Condition condition() const { return end_ ? end_->ended() : Condition{}; }
  void check() const;

 private:
  TcpContext* context_ = nullptr;
  std::unique_ptr<End> end_;
};

using Arrival = TcpMessage<Inbound>;
using Dispatch = TcpMessage<Outbound>;

/// What the collectives over TCP work with: messages between ranks, named by a buffer number that
/// both ends derive from the algorithm. A buffer number is used once per collective, peer and
/// direction.
class TcpContext {
 public:
  /// `agreed`: a hash of what else all ranks have to have alike.
  TcpContext(Board& board, TcpTransport& transport, uint64_t agreed)
      : board(board), transport(transport), rank(board.rank()), size(board.size()) {
    record_.signature = agreed;
  }

  Board& board;
  TcpTransport& transport;
  const int rank;
  const int size;
  FrameMemory frame;

  /// Starts the next collective: says that all before it have ended.
  void begin(const Collective& collective);
  /// The record of the current collective is marked as completed.
  void end() { board.control(rank).collectives.complete(position_); }

  Arrival receive(int peer, uint32_t buffer, std::byte* data, size_t bytes);
  Dispatch send(int peer, uint32_t buffer, const std::byte* data, size_t bytes);

  uint64_t sequence() const { return record_.sequence; }
  uint64_t signature() const { return record_.signature; }
  [[noreturn]] void throwMismatch(const Transmission& message);

  /// The rank `step` after this one, or before it.
  int after(int step) const { return (rank + step) % size; }
  int before(int step) const { return (rank - step % size + size) % size; }

  /// Memory for what arrives to be reduced; kept for later collectives while it is small.
  std::byte* scratch(size_t bytes);

 private:
  OperationRecord record_;
  uint64_t position_ = 0;
  std::vector<std::byte> scratch_;
};

template <class End>
void TcpMessage<End>::check() const {
  if (!end_) return;
  if (end_->isWrong || end_->other.operation.signature != context_->signature()) {
    if constexpr (std::is_same_v<End, Outbound>) {
      if (!end_->isWrong) return;  // eager ones tell nothing of the other end
    }
    context_->throwMismatch(*end_);
  }
}

}  // namespace ctran
