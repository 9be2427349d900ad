// A network of ranks in one process and one thread, in which one thing happens at a time, in an
// order that a seed decides. A transport with every freedom that the interface gives: chunks are
// delayed and overtake each other, memory of a message to be received is garbage until it has
// arrived, and memory of a message to be sent is read late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ctran/transport/transport.h"

namespace ctran::testing {

/// Reproducible, and quick to make.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  size_t below(size_t limit) { return limit == 0 ? 0 : next() % limit; }
  bool oneIn(size_t times) { return below(times) == 0; }

 private:
  uint64_t state_;
};

class ScheduledNetwork {
 public:
  explicit ScheduledNetwork(int size);
  ~ScheduledNetwork();

  Transport& transport(int rank);

  /// Forgets everything. All messages and registrations have to be gone.
  void restart(uint64_t seed);

  /// Lets something happen; false if there is nothing.
  bool step();

  /// The rank is dead from now on: it sends nothing more, and of what it has sent some arrives.
  /// Others notice one by one.
  void kill(int rank);

  /// Who has sent to whom since `restart`.
  const std::set<std::pair<int, int>>& senders() const { return senders_; }

  /// What the others have noticed of it: the error of that rank's listener.
  std::function<void(int rank, const Error&)> onFailure = [](int, const Error&) {};

 private:
  class Side;
  struct Chunk {
    size_t offset = 0, bytes = 0;
    std::vector<std::byte> data;  // once it has left
  };
  /// A message, known to one end or to both.
  struct Flight {
    Outbound* out = nullptr;
    Inbound* in = nullptr;
    bool isSent = false;  // it has had a sender
    OtherEnd sender, receiver;
    std::vector<Chunk> early;  // arrived before there was memory
    size_t left = 0, arrived = 0;
  };
  /// A put, get or add.
  struct Access {
    enum class Kind { Put, Get, Add } kind;
    int from, to;
    uint64_t number;  // among those of the pair
    size_t region, offset;
    std::vector<std::byte> data;
    std::byte* destination = nullptr;
    const std::byte* source = nullptr;
    size_t bytes = 0;
    uint64_t value = 0;
    class OneSided* transfer = nullptr;
  };
  friend class OneSided;

  using Key = std::pair<std::pair<int, int>, MessageName>;
  struct Event {
    enum class Kind { Leave, Arrive, Access, Notice } kind;
    int from = 0, to = 0;
    Key key;  // of Leave and Arrive
    Chunk chunk;
    std::shared_ptr<Access> access;
  };

  Flight& flight(const Key& key) { return flights_[key]; }
  std::unique_ptr<Inbound> receive(Side& side, const MessageName& name, int peer, std::byte* data,
                                   size_t bytes, const OperationRecord& operation);
  std::unique_ptr<Outbound> send(Side& side, const MessageName& name, int peer,
                                 const std::byte* data, size_t bytes,
                                 const OperationRecord& operation);
  std::unique_ptr<Transfer> access(Side& side, Access access, const RemoteMemory& remote);
  void meet(const Key& key, Flight& flight);
  void leaveInChunks(const Key& key, const Flight& flight);
  void deliver(const Key& key, Flight& flight, const Chunk& chunk);
  void perform(Access& access);
  bool mayHappen(const Event& event) const;
  void happen(Event event);
  static void end(Transfer& transfer);

  Random random_;
  size_t eagerBytes_ = 0, chunks_ = 1;
  std::vector<std::unique_ptr<Side>> sides_;
  std::vector<bool> isDead_, isSlow_;
  std::map<Key, Flight> flights_;
  std::set<std::pair<int, int>> senders_;
  std::vector<Event> events_;
  std::vector<std::pair<std::span<std::byte>, int>> regions_;  // registered, and of which rank
  std::map<std::pair<int, int>, uint64_t> issued_;             // accesses of a pair
};

}  // namespace ctran::testing
