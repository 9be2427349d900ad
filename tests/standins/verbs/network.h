#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ctran/verbs/abi.h"

/// How work requests reach queue pairs of other processes of this machine: as datagrams, which a
/// thread of each process takes. A queue pair's number says which process it is of.
///
/// A process has one socket for all others, from the moment when it opens a device: as with a real
/// device, queue pairs and what goes over them need no descriptor.
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

  /// From now on this process has numbers for queue pairs, and others can reach it. False, with
  /// errno, if it has no descriptor left.
  bool open();
  /// From now on it hears what they send, and things happen on a thread, too: where all queue pairs
  /// are of one process they happen when it polls, so that a seed is a schedule.
  void start();
  /// The first number of this process's queue pairs, and how many there are.
  uint32_t firstQpNum() const { return slot_ * kQpNums; }
  static constexpr uint32_t kQpNums = 1 << 14;

  /// False if there is no such process.
  bool send(const Request& request, const std::string& payload);
  /// A receive has been posted: requests may have waited for it.
  void retry();

 private:
  /// What a datagram begins with. Those of one process are parts of one stream.
  struct Sender {
    uint32_t slot;
    int32_t process;
  };
  /// Another process.
  struct Peer {
    int32_t process = 0;  ///< 0: nothing has come from it
    std::string in, out;
    size_t sent = 0;  ///< of `out`
  };
  struct Waiting {
    Sender from;
    Request request;
    std::string payload;
  };

  /// A forked child is another process.
  void forked();
  bool bind();
  void serve();
  void take();
  void look();
  void parse(const Sender& from, Peer& peer);
  void handle(const Sender& from, const Request& request, std::string payload);
  bool put(uint32_t slot, const Request& request, const std::string& payload);
  bool flush(uint32_t slot, Peer& peer);
  ssize_t sendPart(uint32_t slot, const char* data, size_t bytes) const;

  Wire& wire_;
  int socket_ = -1;
  bool isServed_ = false;  ///< there is a thread
  uint32_t slot_ = 0;
  std::map<uint32_t, Peer> peers_;  ///< by slot
  std::vector<Waiting> waiting_;
};

}  // namespace stand_in
