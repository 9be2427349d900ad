#include "ctran/collective/tcp_context.h"

#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/mismatch.h"
#include "ctran/collective/signature.h"

namespace ctran {
namespace {

constexpr size_t kKeptScratch = 32 << 20;

}  // namespace

void TcpContext::begin(const Collective& collective) {
  const uint64_t sequence = record_.sequence + 1;
  record_ = makeRecord(collective, sequence, extendSignature(record_.signature, collective));
  Board::Control& own = board.control(rank);
  position_ = own.collectives.begin(record_);
  own.begun.store(sequence, std::memory_order_release);
  if (scratch_.size() > kKeptScratch) scratch_ = {};
}

Arrival TcpContext::receive(int peer, uint32_t buffer, std::byte* data, size_t bytes) {
  if (bytes == 0) return {};
  const MessageName name{kCollectiveLane, buffer, record_.sequence};
  return {*this, transport.receive(name, peer, data, bytes, record_)};
}

Dispatch TcpContext::send(int peer, uint32_t buffer, const std::byte* data, size_t bytes) {
  if (bytes == 0) return {};
  const MessageName name{kCollectiveLane, buffer, record_.sequence};
  return {*this, transport.send(name, peer, data, bytes, record_)};
}

void TcpContext::throwMismatch(const Transmission& message) {
  if (message.other.operation.signature != record_.signature) {
    if (record_.sequence == kCreation) {
      throw Error(ErrorKind::Mismatch,
                  "rank " + std::to_string(rank) + " and rank " + std::to_string(message.peer) +
                      " create the communicator with different values of the hint "
                      "ctran::algorithm",
                  {message.peer, rank}, "new_comm", "pass the same hints on all ranks");
    }
    ctran::throwMismatch(board, message.peer, record_.sequence);
  }
  throw Error(ErrorKind::Mismatch,
              "rank " + std::to_string(rank) + " and rank " + std::to_string(message.peer) +
                  " disagree on the size of a block of " + describe(record_) + ": " +
                  std::to_string(message.bytes) + " and " + std::to_string(message.other.bytes) +
                  " bytes",
              {message.peer, rank}, describe(record_));
}

std::byte* TcpContext::scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_ = std::vector<std::byte>(bytes);
  return scratch_.data();
}

}  // namespace ctran
