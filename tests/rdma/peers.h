#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tests/unit/verbs/side.h"

namespace ibverbx {

/// A socket to the other end of a test: what both must know, and their barrier. Every wait ends
/// after some seconds with an exception.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  template <typename T>
  void send(const T& value) {
    write({reinterpret_cast<const uint8_t*>(&value), sizeof value});
  }
  template <typename T>
  T receive() {
    T value;
    read({reinterpret_cast<uint8_t*>(&value), sizeof value});
    return value;
  }
  template <typename T>
  T exchange(const T& value) {
    send(value);
    return receive<T>();
  }
  /// Returns when the other end has called it, too.
  void meet() { exchange('x'); }
  /// Does something again and again until the other end has called meet().
  void meetWhile(const std::function<void()>& again);

 private:
  void write(std::span<const uint8_t> bytes);
  void read(std::span<uint8_t> bytes);
  int fd_;
};

using Role = std::function<void(Channel&)>;

/// Where the other end of a test runs.
enum class Where { SameProcess, OtherProcess };

/// Runs `here` in this thread and `there` in another one, or in a process of its own, until both
/// end. What either throws fails the test.
void between(Where where, const Role& here, const Role& there);

/// Another process that runs `there` and is killed with SIGKILL by kill(), or in the end.
class Victim {
 public:
  explicit Victim(const Role& there);
  ~Victim() { kill(); }
  Channel& channel() { return channel_; }
  void kill();

 private:
  Victim(const Role& there, std::pair<int, int> sockets);
  Channel channel_;
  int pid_;
};

/// The next completion of a queue. There is one within some seconds, or the test fails.
ibv_wc next(IbvCq& cq, double seconds = 10);

/// One end of a connection of two queue pairs, with registered memory that the other end knows.
struct Peer {
  explicit Peer(Channel& channel, size_t bytes = 4096, unsigned access = kAllAccess,
                const IbvRtsOptions& rts = {});

  /// A request from our memory at `offset` to the same place of theirs.
  ibv_send_wr request(ibv_wr_opcode opcode, size_t offset, uint32_t bytes);
  Maybe post(ibv_send_wr wr);
  void receive(size_t offset = 0, uint32_t bytes = 0);
  /// Posts, and waits for the completion.
  ibv_wc complete(const ibv_send_wr& wr);

  /// What lets one reach the other's memory.
  struct Remote {
    ibv_gid gid;
    uint32_t qpNum, rkey;
    uint64_t address;
  };
  Side side;
  std::vector<uint8_t> memory;
  IbvMr mr;
  IbvQp qp;
  Channel& channel;
  Remote remote{};
  ibv_sge sge{};
};

}  // namespace ibverbx
