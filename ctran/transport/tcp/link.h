#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ctran/os/tcp_socket.h"
#include "ctran/transport/tcp/frame.h"

namespace ctran {

struct IbPlacement;

/// One connection as a stream of frames, in both directions; never blocks. Its user knows what the
/// frames mean. The user also has the bulk data that several connections share: each takes as much
/// of it as its socket has room for.
class Link {
 public:
  /// A frame that waits to be written. The payload lies in memory of `owner`, or in `owned`.
  struct Outgoing {
    FrameHeader header;
    const std::byte* data = nullptr;
    void* owner = nullptr;
    std::vector<std::byte> owned = {};
    std::shared_ptr<const IbPlacement> placement = {};  ///< for Placed: what is still to be placed
    uint64_t placedBytes = 0;                           ///< then: its bytes
  };

  /// Tells `read` where payloads go, and is told what has been read.
  class Reader {
   public:
    virtual ~Reader() = default;
    /// Is called when a header has been read. Returns where its payload is to be put; null to drop
    /// it. Throws std::string: why the stream cannot go on.
    virtual std::byte* begin(const FrameHeader& frame) = 0;
    /// Is called when the payload has been read, too.
    virtual void end(const FrameHeader& frame) = 0;
  };

  using Frames = std::deque<Outgoing>;

  /// Starts with a new socket. Frames that wait to be written stay; those that had begun are
  /// written from their start.
  void open(TcpSocket socket) {
    socket_ = std::move(socket);
    hasHeard_ = isBroken_ = false;
    sent_ = headBytes_ = remaining_ = 0;
    into_ = nullptr;
  }
  void close() { socket_.close(); }
  bool isOpen() const { return static_cast<bool>(socket_); }
  const TcpSocket& socket() const { return socket_; }
  /// Returns whether anything has been read since `open`.
  bool hasHeard() const { return hasHeard_; }

  /// Appends a frame that is written before bulk data.
  void push(Outgoing frame) { urgent_.push_back(std::move(frame)); }

  /// Writes some of what waits here, and then frames of `bulk`, until they are `enough` bytes.
  /// Calls `written(owner, bytes)` for each frame that has left. Returns true if there may be room
  /// for more; false also when the connection is broken.
  bool write(Frames& bulk, size_t enough, const std::function<void(void*, size_t)>& written);
  /// Returns whether frames wait here, or have begun to leave.
  bool hasOutput() const { return !picked_.empty() || !urgent_.empty(); }
  /// Returns the bytes of payload that wait here.
  size_t waiting() const {
    size_t bytes = 0;
    for (const Frames* frames : {&picked_, &urgent_}) {
      for (const Outgoing& frame : *frames) bytes += frame.header.bytes;
    }
    return bytes;
  }
  /// Returns whether writing has failed. What the peer has sent before can still be read.
  bool isBroken() const { return isBroken_; }

  /// Drops the frames that have not begun.
  void dropWaiting() { urgent_.clear(); }

  /// Releases an owner's memory: its frames do not leave any more, except those that have begun,
  /// whose payload is copied.
  void forget(void* owner);

  /// Reads what is there, up to a few megabytes. Returns an empty text, or why the connection has
  /// ended.
  std::string read(Reader& reader);

  /// Drops the rest of the payload that is being read, if it goes to memory between these
  /// addresses.
  void divert(const std::byte* begin, const std::byte* end) {
    if (into_ >= begin && into_ < end) into_ = nullptr;
  }

 private:
  void parse(Reader& reader, std::span<const std::byte> data);

  TcpSocket socket_;
  bool hasHeard_ = false;
  bool isBroken_ = false;
  Frames urgent_;
  Frames picked_;    // in the order in which they leave
  size_t sent_ = 0;  // bytes of the first of them, with its header

  FrameHeader frame_;
  size_t headBytes_ = 0;  // bytes that were read of the current header
  size_t remaining_ = 0;  // bytes of its payload that are still to be read
  std::byte* into_ = nullptr;
};

}  // namespace ctran
