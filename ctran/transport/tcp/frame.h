#pragma once

#include <cstddef>
#include <cstdint>

#include "ctran/transport/message.h"

namespace ctran {

/// What a TCP connection carries after the handshake: frames, each a header and at most kFrameBytes
/// of payload. Numbers are little-endian, as both ends are.
///
///  - A small message (kEagerBytes) is sent at once, as one Eager frame. What the receiver has not
///    bound yet, it keeps, up to kEagerWindow per queue and peer; the sender counts, and Credit
///    frames give it room again.
///  - A larger message is announced by an Announce frame. Data frames follow when the receiver has
///    bound memory and said so with Ready; they are received into place.
///
/// A pair of ranks may have several connections. The first carries all of this. The others, which
/// are there for bandwidth, carry Data only: its header says where it belongs, so it does not
/// matter on which connection it comes, nor when.
///
/// Opened is the first frame that a caller sends on a connection: before it, the acceptor cannot
/// know whether the caller has seen its welcome, or has hung up. Goodbye is the last frame on each
/// connection of a rank that leaves.
///
/// If both ends have RDMA (rdma.cpp), they make one or several rails, each over a device of both
/// ends; `name.buffer` is the rail's number. Each end sends its card, Connected when it has got the
/// other's, Proven when a write has passed, and Switch when writes have passed in both directions.
/// What it sends from then on goes over RDMA, and is read after the Switch: everything over rail 0,
/// Data and Placed over the others.
///
/// An end for which a rail has failed stops reading from it, and says with Lost how many bytes it
/// has read. The other end answers with its own Lost, and sends what has not been read over this
/// connection.
///
/// If a peer sends over RDMA, the Ready for a message whose memory is registered says where that
/// memory is (IbTarget). If the sender's memory is registered as well, it writes the message there,
/// in parts, and sends Placed after each part, instead of Data.
///
/// The devices of other ranks write and read registered memory of a rank without frames. What a
/// failed link leaves of that is sent as Put and Get frames, and Got answers a Get: `name.sequence`
/// is the registration, `name.buffer` the number of the Get, and `count` its bytes.
enum class FrameType : uint32_t {
  Eager = 1,
  Announce,
  Ready,
  Data,
  Credit,
  Failure,
  Goodbye,
  Opened,
  Card,
  Connected,
  Proven,
  Switch,
  Placed,
  Lost,
  Put,
  Get,
  Got
};

inline constexpr size_t kEagerBytes = 64 << 10;
inline constexpr size_t kEagerWindow = 1 << 20;
/// Bytes of one frame's payload, and of one system call for a large message, on one connection as
/// on several. If both ends are on one machine, a frame is still in a cache when the other end
/// copies it out of the kernel's memory; with frames of a megabyte or more, 64 MB take a quarter
/// longer.
inline constexpr size_t kFrameBytes = 256 << 10;
inline constexpr size_t kFailureBytes = 16 << 10;
inline constexpr size_t kCardBytes = 144;
inline constexpr size_t kTargetBytes = 32;
inline constexpr size_t kPlacedPayload = 8;  ///< the number of bytes that were placed
/// The most connections of a pair.
inline constexpr size_t kMaxConnections = 16;
/// How much a pair has to move in large messages before it makes more connections than one by
/// itself.
inline constexpr size_t kBulkBytes = 4 << 20;
/// The most messages that are announced, or that a peer is ready for, before the other end has come
/// to them.
inline constexpr size_t kMaxPromises = 4096;

struct FrameHeader {
  FrameType type = FrameType::Goodbye;
  uint32_t bytes = 0;  ///< bytes of payload
  MessageName name;
  /// For Data and Placed the offset in the message; for Announce and Ready its size; for Credit and
  /// Lost a number of bytes; for Put and Get the offset in the registered memory; for Got in the
  /// answer.
  uint64_t offset = 0;
  uint64_t signature = 0, what = 0, count = 0;  ///< of the sender's operation, see OperationRecord
};
static_assert(sizeof(FrameHeader) == 56);

/// Returns what one Eager frame takes of the window.
inline size_t eagerCost(size_t bytes) { return bytes + sizeof(FrameHeader); }

/// Returns why no peer of this version would send such a frame; null if one might.
inline const char* whyInvalid(const FrameHeader& frame) {
  if (frame.name.queue >= kQueues) return "a frame of an unknown queue";
  switch (frame.type) {
    case FrameType::Eager:
      return frame.bytes <= kEagerBytes ? nullptr : "an oversized eager frame";
    case FrameType::Data:
    case FrameType::Put:
    case FrameType::Got:
      return frame.bytes <= kFrameBytes ? nullptr : "an oversized frame";
    case FrameType::Failure:
      return frame.bytes <= kFailureBytes ? nullptr : "an oversized error";
    case FrameType::Card:
      return frame.bytes == kCardBytes ? nullptr : "a card of another size";
    case FrameType::Ready:
      return frame.bytes == 0 || frame.bytes == kTargetBytes ? nullptr : "a target of another size";
    case FrameType::Placed:
      return frame.bytes == kPlacedPayload ? nullptr : "a placement of another size";
    case FrameType::Connected:
    case FrameType::Proven:
    case FrameType::Switch:
    case FrameType::Lost:
    case FrameType::Get:
    case FrameType::Announce:
    case FrameType::Credit:
    case FrameType::Goodbye:
    case FrameType::Opened:
      return frame.bytes == 0 ? nullptr : "a payload where there is none";
  }
  return "a frame of an unknown type";
}

}  // namespace ctran
