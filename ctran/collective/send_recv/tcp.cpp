#include "ctran/collective/send_recv/tcp.h"

#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/signature.h"

namespace ctran {
namespace {

MessageName nextName(TcpChannel& channel, int tag) {
  return {kMessageLane, static_cast<uint32_t>(tag), channel.sequences[tag]++};
}

/// The operation as the peer is told of it; the type, on which both have to agree, is the
/// signature.
OperationRecord recordOf(const Collective& c) {
  return makeRecord(c, 0, static_cast<uint64_t>(c.type));
}

void check(const TcpChannel& channel, const Collective& c, const Transmission& message) {
  const OperationRecord& other = message.other.operation;
  const bool known = other.what != 0;  // a sender hears nothing of eager messages
  if (!message.isWrong &&
      (!known || (other.signature == static_cast<uint64_t>(c.type) && other.count == c.count))) {
    return;
  }
  throw Error(
      ErrorKind::Mismatch,
      "rank " + std::to_string(channel.rank) + " called " + c.describe() + ", but rank " +
          std::to_string(channel.peer) + " called " + describe(other),
      {channel.rank, channel.peer}, c.describe(),
      "messages of a pair of ranks and a tag are matched in order; type and size must agree");
}

}  // namespace

/// Small messages (kEagerBytes) end when the operating system has them; larger ones leave when the
/// receiver is ready, and go straight into its memory.
Task sendTcp(TcpChannel& channel, const Collective& c) {
  const auto message = channel.transport.send(nextName(channel, c.tag), channel.peer, c.input,
                                              c.blockBytes(), recordOf(c));
  co_await message->ended();
  check(channel, c, *message);
}

/// Takes the next message of the channel, which must be of the same type and count.
Task recvTcp(TcpChannel& channel, const Collective& c) {
  const auto message = channel.transport.receive(nextName(channel, c.tag), channel.peer, c.output,
                                                 c.blockBytes(), recordOf(c));
  co_await message->ended();
  check(channel, c, *message);
}

}  // namespace ctran
