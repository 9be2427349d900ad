#include "ctran/collective/net_context.h"

#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/mismatch.h"
#include "ctran/collective/signature.h"

namespace ctran {
void HostsCall::begin(const Collective& collective) {
  const uint64_t sequence = record_.sequence + 1;
  record_ = makeRecord(collective, sequence, extendSignature(record_.signature, collective));
  Board::Control& own = board.control(board.rank());
  position_ = own.collectives.begin(record_);
  own.begun.store(sequence, std::memory_order_release);
}

NetContext::NetContext(HostsCall& call)
    : call(call), rank(call.board.rank()), size(call.board.size()), contributions_(size) {}

NetContext::NetContext(HostsCall& call, const HostMap& map) : NetContext(call) {
  if (!map.isInOrder()) order_.emplace(map);
}

NetContext::NetContext(HostsCall& call, const HostMap& map, int root)
    : call(call),
      rank(map.host()),
      size(map.hosts()),
      delegates_(map),
      root_(root),
      contributions_(size) {}

void NetContext::prepare(int contributions, uint32_t firstBuffer) {
  contributions_ = contributions;
  firstBuffer_ = firstBuffer;
  if (scratch_.size() > kKeptScratch) scratch_ = {};
}

Arrival NetContext::receive(int peer, uint32_t buffer, std::byte* data, size_t bytes) {
  if (bytes == 0) return {};
  const MessageName name{kCollectiveQueue, firstBuffer_ + buffer, call.sequence()};
  return {*this, call.transport.receive(name, memberOf(peer), data, bytes, call.record())};
}

Dispatch NetContext::send(int peer, uint32_t buffer, const std::byte* data, size_t bytes) {
  if (bytes == 0) return {};
  const MessageName name{kCollectiveQueue, firstBuffer_ + buffer, call.sequence()};
  return {*this, call.transport.send(name, memberOf(peer), data, bytes, call.record())};
}

void HostsCall::throwMismatch(const Transmission& message) const {
  const int rank = board.rank();
  if (message.other.operation.signature != record_.signature) {
    if (record_.sequence == kCreation) {
      throw Error(ErrorKind::Mismatch,
                  "rank " + std::to_string(rank) + " and rank " + std::to_string(message.peer) +
                      " create the communicator with different values of the hint "
                      "ctran::algorithm, of ctran::deterministic, or of CTRAN_ALGORITHM",
                  {message.peer, rank}, "new_comm", "set them alike on all ranks");
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

std::byte* NetContext::scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_ = std::vector<std::byte>(bytes);
  return scratch_.data();
}

}  // namespace ctran
