#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/rdma/future.h"
#include "ctran/rdma/loop.h"
#include "ctran/rdma/registration.h"

namespace ctran {

/// Memory of the connected peer.
struct RdmaRemote {
  uint64_t address = 0;
  uint64_t bytes = 0;  ///< 0: as far as the key reaches
  std::string key;     ///< RdmaKey::text()
};

struct RdmaOptions {
  /// Thread that drives it; null: one that all share.
  std::shared_ptr<RdmaLoop> loop;
  /// When transfers are under way and nothing has moved for so long, the connection fails.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  /// Those that it uses, by their numbers in RdmaDevices; empty: see devicesFor().
  std::vector<size_t> devices = {};
  int gpu = -1;  ///< the CUDA device for whose memory it is meant
};

/// A connection of two processes over RDMA, for reading and writing memory of the peer's from
/// memory of this one's, without copies.
///
/// Both ends call bind(), pass on the URL by a way of their own, and call connect() with the
/// other's; what is sent before the peer has connected is tried again for about two seconds.
/// Several devices are used together: a large message is cut among them.
///
/// Any thread may call anything at any time. A wrong argument throws Error(InvalidArgument) and
/// changes nothing. After a failure of the connection, every transfer under way and every later one
/// fails with what happened first. A future is ready when the devices have let go of the memory.
class RdmaTransport {
 public:
  /// Whether this machine has an RDMA device that can be used; else `why` not, if that is wanted.
  static bool supported(std::string* why = nullptr);

  /// Throws Error(Unsupported) where supported() is false.
  explicit RdmaTransport(RdmaOptions options = {});
  /// What is under way fails with Error(Aborted), first.
  ~RdmaTransport();
  RdmaTransport(const RdmaTransport&) = delete;
  RdmaTransport& operator=(const RdmaTransport&) = delete;

  /// What the peer's connect() takes; always the same.
  std::string bind();
  /// Once. Does not wait for the peer.
  void connect(std::string_view url);
  bool connected() const;

  /// Ready when the data are in the peer's memory. With `notify` one waitForWrite() there becomes
  /// ready, after the data of this write and of all before it are in place.
  RdmaFuture write(const RdmaSpan& from, const RdmaRemote& to, bool notify);
  /// Ready when the data are here. Not ordered with writes.
  RdmaFuture read(const RdmaSpan& into, const RdmaRemote& from);
  /// Ready when the peer has written with `notify`; each such write serves one call. While it waits
  /// for a peer that is silent, it makes sure that the peer is alive.
  RdmaFuture waitForWrite();

 private:
  class Connection;
  std::shared_ptr<RdmaLoop> loop_;
  std::shared_ptr<Connection> connection_;
};

}  // namespace ctran
