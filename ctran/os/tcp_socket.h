#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "ctran/os/net_address.h"
#include "ctran/os/unique_fd.h"

namespace ctran {

/// A TCP socket that never blocks. A child after fork() does not keep the connection open: the peer
/// sees the end of the process that made it.
class TcpSocket {
 public:
  TcpSocket() = default;
  explicit TcpSocket(UniqueFd fd);
  TcpSocket(TcpSocket&& other) noexcept = default;
  TcpSocket& operator=(TcpSocket&& other) noexcept = default;
  ~TcpSocket() { close(); }

  int get() const { return fd_.get(); }
  const UniqueFd& fd() const { return fd_; }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void close();

  /// The other end's address; none if there is no connection.
  NetAddress remote() const;
  /// Bytes that were written and that the peer's host has not acknowledged.
  size_t unacknowledged() const;

 private:
  UniqueFd fd_;
};

/// How long a peer's host may be silent before it counts as lost (CTRAN_TCP_LOST_MILLIS).
std::chrono::milliseconds lostAfter();

/// Listens at a free port of all of `addresses`, whose ports are set to it.
TcpSocket listenTcp(std::vector<NetAddress>& addresses);

/// The `op` of errors that are of this process, as no descriptor is left, and not of an address.
inline constexpr const char* kMakingSockets = "socket";

/// Begins to connect, from an address of this host or, if `from` is none, by the route; if that
/// fails, reading says why. Throws Error(System) if there is no way to that address.
TcpSocket beginConnect(const NetAddress& address, const NetAddress& from = {});

/// Empty when nobody waits to be let in. Throws Error(System).
TcpSocket acceptTcp(const TcpSocket& listener);

/// What one read or write did: bytes moved, or why none. `Closed`: the peer has ended the stream.
struct Transfer {
  enum class End { None, WouldBlock, Closed, Failed };
  size_t bytes = 0;
  End end = End::None;
  int error = 0;  ///< errno of Failed
};

Transfer readSome(const TcpSocket& socket, std::span<std::byte> to);
Transfer writeSome(const TcpSocket& socket, std::span<const std::byte> from);

}  // namespace ctran
