#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "ctran/os/net_address.h"
#include "ctran/os/unique_fd.h"

namespace ctran {

/// A socket that never blocks. A child after fork() does not keep the connection open, nor the name
/// or port at which it listens: the peer sees the end of the process that made it.
class Socket {
 public:
  Socket() = default;
  /// Of what `open` returns: a new descriptor, or -1 with errno. A fork() waits until it is known
  /// to be this process' own. Empty, with errno, if there is none.
  static Socket made(const std::function<int()>& open);

  Socket(Socket&& other) noexcept = default;
  Socket& operator=(Socket&& other) noexcept = default;
  ~Socket() { close(); }

  int get() const { return fd_.get(); }
  const UniqueFd& fd() const { return fd_; }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close();

  /// The other end's address; none if there is no connection over TCP.
  NetAddress remote() const;
  /// Bytes that were written and that the peer's host has not acknowledged.
  size_t unacknowledged() const;

 private:
  UniqueFd fd_;
};

/// The `op` of errors that are of this process, as no descriptor is left, and not of an address.
inline constexpr const char* kMakingSockets = "socket";

/// One of `family`. Throws Error(System) of kMakingSockets.
Socket newSocket(int family);

/// Empty when nobody waits to be let in. Throws Error(System) of kMakingSockets.
Socket acceptOne(const Socket& listener);

/// What one read or write did: bytes moved, or why none. `Closed`: the peer has ended the stream.
struct IoResult {
  enum class End { None, WouldBlock, Closed, Failed };
  size_t bytes = 0;
  End end = End::None;
  int error = 0;  ///< errno of Failed
};

IoResult readSome(const Socket& socket, std::span<std::byte> to);
IoResult writeSome(const Socket& socket, std::span<const std::byte> from);

}  // namespace ctran
