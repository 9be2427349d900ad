#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ctran/verbs/abi.h"

/// How work requests reach queue pairs of other processes of this machine: over sockets, which a
/// thread serves. A queue pair's number says which process it is of.
namespace stand_in {

struct Wire;

/// What a work request asks of the process of the other queue pair.
struct Request {
  uint64_t id;  ///< of the sender; 0 in a reply
  uint64_t replyTo;
  uint64_t remoteAddress, compareAdd, swap;
  uint32_t rkey, fromQp, toQp, immediate, bytes;
  uint32_t payload;  ///< bytes that follow
  ibverbx::ibv_wr_opcode opcode;
  ibverbx::ibv_wc_status status;  ///< of a reply
  bool waitsForReceive;
  ibverbx::ibv_gid toGid;
};

/// Guarded by the wire's lock.
class Network {
 public:
  ~Network() = delete;  // outlives every thread of the process
  explicit Network(Wire& wire) : wire_(wire) {}

  /// The first number of this process's queue pairs, and how many there are.
  uint32_t firstQpNum();
  static constexpr uint32_t kQpNums = 1 << 14;

  /// From now on other processes can reach this one.
  void open();
  /// False if there is no such process.
  bool send(const Request& request, const std::string& payload);
  /// A receive has been posted: requests may have waited for it.
  void retry();

 private:
  struct Connection {
    int fd;
    uint32_t slot;  ///< of the process that was called; kAccepted if it has called
    std::string in, out;
  };
  struct Waiting {
    std::weak_ptr<Connection> from;
    Request request;
    std::string payload;
  };
  static constexpr uint32_t kAccepted = UINT32_MAX;

  /// A forked child is another process.
  void forked();
  void serve();
  void parse(const std::shared_ptr<Connection>& connection);
  void handle(const std::shared_ptr<Connection>& connection, const Request& request,
              std::string payload);
  void put(Connection& connection, const Request& request, const std::string& payload);
  void flush(Connection& connection);
  void wake();

  Wire& wire_;
  int listener_ = -1;
  int waker_ = -1;
  uint32_t slot_ = 0;
  bool open_ = false;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<Waiting> waiting_;
};

}  // namespace stand_in
