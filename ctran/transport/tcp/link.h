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

/// One connection as a stream of frames, in both directions; never blocks. What the frames mean is
/// its user's matter, and so is the bulk data that several connections share: each takes of it what
/// its socket has room for.
class Link {
 public:
  /// A frame that waits to be written. The payload lies in memory of whoever `owner` is, or in
  /// `owned`.
  struct Outgoing {
    FrameHeader header;
    const std::byte* data = nullptr;
    void* owner = nullptr;
    std::vector<std::byte> owned = {};
    std::shared_ptr<const IbPlacement> placement = {};  ///< of Placed that is still to be placed
    uint64_t placedBytes = 0;                           ///< then
  };

  /// What reading needs to know, and tells.
  class Reader {
   public:
    virtual ~Reader() = default;
    /// A header has come. Where its payload is to be put; null to drop it. Throws std::string: why
    /// the stream cannot go on.
    virtual std::byte* begin(const FrameHeader& frame) = 0;
    /// The payload has come too.
    virtual void end(const FrameHeader& frame) = 0;
  };

  using Frames = std::deque<Outgoing>;

  /// What waits to be written stays, frames that have begun from their start.
  void open(TcpSocket socket) {
    socket_ = std::move(socket);
    hasHeard_ = isBroken_ = false;
    sent_ = headBytes_ = remaining_ = 0;
    into_ = nullptr;
  }
  void close() { socket_.close(); }
  bool isOpen() const { return static_cast<bool>(socket_); }
  const TcpSocket& socket() const { return socket_; }
  /// Whether anything has come since `open`.
  bool hasHeard() const { return hasHeard_; }

  /// A frame that passes bulk data.
  void push(Outgoing frame) { urgent_.push_back(std::move(frame)); }

  /// Writes some of what waits here, and then of `bulk`, of which it takes frames until they are
  /// `enough` bytes. `written(owner, bytes)` for each frame that has left. True if there may be
  /// room for more; false too when the connection is broken.
  bool write(Frames& bulk, size_t enough, const std::function<void(void*, size_t)>& written);
  /// Whether frames wait here, or have begun to leave.
  bool hasOutput() const { return !picked_.empty() || !urgent_.empty(); }
  /// Payload that waits here, in bytes.
  size_t waiting() const {
    size_t bytes = 0;
    for (const Frames* frames : {&picked_, &urgent_}) {
      for (const Outgoing& frame : *frames) bytes += frame.header.bytes;
    }
    return bytes;
  }
  /// Whether writing has failed. What the peer has said last can still be read.
  bool isBroken() const { return isBroken_; }

  /// Drops the frames that have not begun.
  void dropWaiting() { urgent_.clear(); }

  /// Lets go of an owner's memory: its frames do not leave any more, but for those that have begun,
  /// whose payload is copied.
  void forget(void* owner);

  /// Reads what is there, up to a few megabytes. Empty, or why the connection has ended.
  std::string read(Reader& reader);

  /// The payload that is being read goes nowhere from now on, if it went between these.
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
  size_t headBytes_ = 0;  // of the header that is being read
  size_t remaining_ = 0;  // of its payload
  std::byte* into_ = nullptr;
};

}  // namespace ctran
