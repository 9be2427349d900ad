#include "tests/unit/support/scheduled_network.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ctran/base/checked.h"
#include "tests/unit/support/cases.h"

namespace ctran::testing {

uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15;
  return mix(state_);
}

/// A put, get or add that is under way.
class OneSided final : public Transfer {
 public:
  OneSided(Transport& transport, int peer, size_t bytes, std::shared_ptr<void> access)
      : Transfer(transport, peer, bytes), access_(std::move(access)) {}
  ~OneSided() override {
    static_cast<ScheduledNetwork::Access*>(access_.get())->transfer = nullptr;
  }

 private:
  std::shared_ptr<void> access_;
};

namespace {

class Registration final : public MemoryRegistration {
 public:
  Registration(std::span<std::byte> memory, const RemoteMemory& remote,
               std::function<void()> forget)
      : MemoryRegistration(memory, remote), forget_(std::move(forget)) {}
  ~Registration() override { forget_(); }

 private:
  std::function<void()> forget_;
};

}  // namespace

class ScheduledNetwork::Side final : public Transport {
 public:
  Side(ScheduledNetwork& network, int rank) : network_(network), rank(rank) {}

  std::string_view name() const override { return "scheduled"; }
  TransportAbilities abilities() const override {
    return {.directToUser = true, .remoteRead = true};
  }
  std::unique_ptr<Inbound> receive(const MessageName& name, int peer, std::byte* data, size_t bytes,
                                   const OperationRecord& operation) override {
    return network_.receive(*this, name, peer, data, bytes, operation);
  }
  std::unique_ptr<Outbound> send(const MessageName& name, int peer, const std::byte* data,
                                 size_t bytes, const OperationRecord& operation) override {
    sent_ += bytes;
    return network_.send(*this, name, peer, data, bytes, operation);
  }
  uint64_t offers() const override { return offers_.load(); }
  Condition offered(int peer, uint64_t seen) const override {
    return {reinterpret_cast<const std::byte*>(&offers_), 0, seen + 1, peer, peer + 1};
  }
  bool hasOffer(const MessageName& name, int peer) override {
    const auto found = network_.flights_.find({{peer, rank}, name});
    return found != network_.flights_.end() && found->second.isSent && found->second.in == nullptr;
  }
  std::unique_ptr<MemoryRegistration> registerMemory(std::span<std::byte> memory, int) override {
    const uint64_t region = network_.regions_.size();
    network_.regions_.emplace_back(memory, rank);
    RemoteMemory remote{.bytes = memory.size()};
    std::memcpy(remote.key.data(), &region, sizeof region);
    return std::make_unique<Registration>(memory, remote, [this, region] {
      if (region < network_.regions_.size()) network_.regions_[region] = {};
    });
  }
  std::unique_ptr<Transfer> put(int peer, const RemoteMemory& remote, size_t offset,
                                std::span<const std::byte> source) override {
    Access access{Access::Kind::Put, rank, peer, 0, 0, offset, {}};
    access.source = source.data();
    access.bytes = source.size();
    return network_.access(*this, std::move(access), remote);
  }
  std::unique_ptr<Transfer> get(int peer, const RemoteMemory& remote, size_t offset,
                                std::span<std::byte> destination) override {
    Access access{Access::Kind::Get, rank, peer, 0, 0, offset, {}};
    access.destination = destination.data();
    access.bytes = destination.size();
    return network_.access(*this, std::move(access), remote);
  }
  std::unique_ptr<Transfer> add(int peer, const RemoteMemory& remote, size_t offset,
                                uint64_t value) override {
    Access access{Access::Kind::Add, rank, peer, 0, 0, offset, {}};
    access.bytes = sizeof value;
    access.value = value;
    return network_.access(*this, std::move(access), remote);
  }

  void connect(int) override {}
  bool mayHear(int peer) override { return !network_.isDead_[peer]; }
  void tell(const Error&) override {}
  void leave(std::chrono::milliseconds) override {}
  std::string describe(int other) const override { return "rank " + std::to_string(other); }
  int connections() override { return static_cast<int>(network_.sides_.size()) - 1; }
  int connections(int) override { return 1; }
  uint64_t bytesSent() const override { return sent_; }
  bool poll() override { return network_.step(); }
  int fd() const override { return -1; }

  void offer() { offers_.fetch_add(1); }
  void forgetOffers() { offers_.store(0); }

 private:
  void release(Inbound& message) override {
    const auto found = network_.flights_.find({{message.peer, rank}, message.name});
    if (found != network_.flights_.end() && found->second.in == &message) {
      found->second.in = nullptr;
    }
  }
  void release(Outbound& message) override {
    const auto found = network_.flights_.find({{rank, message.peer}, message.name});
    if (found != network_.flights_.end() && found->second.out == &message) {
      found->second.out = nullptr;
    }
  }

  ScheduledNetwork& network_;
  std::atomic<uint64_t> offers_{0};
  uint64_t sent_ = 0;

 public:
  const int rank;
};

ScheduledNetwork::ScheduledNetwork(int size) : random_(0), isDead_(size), isSlow_(size * size) {
  for (int r = 0; r < size; ++r) sides_.push_back(std::make_unique<Side>(*this, r));
}
ScheduledNetwork::~ScheduledNetwork() = default;

Transport& ScheduledNetwork::transport(int rank) { return *sides_[rank]; }

void ScheduledNetwork::restart(uint64_t seed) {
  senders_.clear();
  random_ = Random(seed);
  constexpr size_t kEager[] = {0, 64, 4096, SIZE_MAX};
  constexpr size_t kChunks[] = {1, 2, 5};
  eagerBytes_ = kEager[random_.below(std::size(kEager))];
  chunks_ = kChunks[random_.below(std::size(kChunks))];
  std::fill(isDead_.begin(), isDead_.end(), false);
  for (size_t pair = 0; pair < isSlow_.size(); ++pair) isSlow_[pair] = random_.oneIn(4);
  flights_.clear();
  events_.clear();
  regions_.clear();
  issued_.clear();
  for (const auto& side : sides_) side->forgetOffers();
}

void ScheduledNetwork::end(Transfer& transfer) {
  transfer.progress.store(Transfer::kEnded, std::memory_order_release);
}

std::unique_ptr<Inbound> ScheduledNetwork::receive(Side& side, const MessageName& name, int peer,
                                                   std::byte* data, size_t bytes,
                                                   const OperationRecord& operation) {
  auto message = std::make_unique<Inbound>(side, name, peer, data, bytes, operation);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(random_.next());
  const Key key{{peer, side.rank}, name};
  Flight& found = flight(key);
  found.in = message.get();
  found.receiver = {bytes, operation};
  meet(key, found);
  return message;
}

std::unique_ptr<Outbound> ScheduledNetwork::send(Side& side, const MessageName& name, int peer,
                                                 const std::byte* data, size_t bytes,
                                                 const OperationRecord& operation) {
  auto message = std::make_unique<Outbound>(side, name, peer, data, bytes, operation);
  const Key key{{side.rank, peer}, name};
  senders_.emplace(side.rank, peer);
  Flight& found = flight(key);
  found.out = message.get();
  found.isSent = true;
  found.sender = {bytes, operation};
  if (found.in == nullptr && name.queue == kMessageQueue) sides_[peer]->offer();
  if (bytes <= eagerBytes_) leaveInChunks(key, found);
  meet(key, found);
  return message;
}

/// Both ends of a message may be there now.
void ScheduledNetwork::meet(const Key& key, Flight& flight) {
  if (flight.in == nullptr || !flight.isSent) return;
  const bool wasEager = flight.sender.bytes <= eagerBytes_;
  if (flight.sender.bytes != flight.receiver.bytes) {
    flight.in->isWrong = true;
    flight.in->other = flight.sender;
    end(*std::exchange(flight.in, nullptr));
    if (flight.out != nullptr && !wasEager) {
      flight.out->isWrong = true;
      flight.out->other = flight.receiver;
      end(*std::exchange(flight.out, nullptr));
    }
    return;
  }
  flight.in->other = flight.sender;
  if (!wasEager) {
    if (flight.out == nullptr) return;
    flight.out->other = flight.receiver;
    leaveInChunks(key, flight);
  }
  for (const Chunk& chunk : std::exchange(flight.early, {})) deliver(key, flight, chunk);
}

void ScheduledNetwork::leaveInChunks(const Key& key, const Flight& flight) {
  const size_t bytes = flight.sender.bytes;
  const size_t chunk = bytes <= eagerBytes_ ? bytes : (bytes + chunks_ - 1) / chunks_;
  for (size_t offset = 0; offset < bytes; offset += chunk) {
    Event event{Event::Kind::Leave, key.first.first, key.first.second, key, {}, nullptr};
    event.chunk.offset = offset;
    event.chunk.bytes = std::min(chunk, bytes - offset);
    events_.push_back(std::move(event));
  }
}

void ScheduledNetwork::deliver(const Key& key, Flight& flight, const Chunk& chunk) {
  if (flight.in == nullptr) {
    flight.early.push_back(chunk);
    return;
  }
  Inbound& message = *flight.in;
  std::memcpy(message.data + chunk.offset, chunk.data.data(), chunk.bytes);
  flight.arrived += chunk.bytes;
  if (flight.arrived < message.bytes) return;
  flight.in = nullptr;
  end(message);
  if (flight.out == nullptr) flights_.erase(key);
}

std::unique_ptr<Transfer> ScheduledNetwork::access(Side& side, Access access,
                                                   const RemoteMemory& remote) {
  if (!isInside(access.offset, access.bytes, remote.bytes)) {
    throw Error(ErrorKind::InvalidArgument, "beyond the end of registered memory", {access.to});
  }
  uint64_t region;
  std::memcpy(&region, remote.key.data(), sizeof region);
  access.region = region;
  access.number = issued_[{access.from, access.to}]++;
  auto shared = std::make_shared<Access>(std::move(access));
  auto transfer = std::make_unique<OneSided>(side, shared->to, shared->bytes, shared);
  shared->transfer = transfer.get();
  Event event{Event::Kind::Access, shared->from, shared->to, {}, {}, shared};
  events_.push_back(std::move(event));
  return transfer;
}

/// An add waits for the accesses before it.
bool ScheduledNetwork::mayHappen(const Event& event) const {
  if (event.kind != Event::Kind::Access || event.access->kind != Access::Kind::Add) return true;
  return std::none_of(events_.begin(), events_.end(), [&](const Event& other) {
    return other.access && other.access->from == event.from && other.access->to == event.to &&
           other.access->number < event.access->number;
  });
}

void ScheduledNetwork::perform(Access& access) {
  if (access.transfer == nullptr) return;  // given up
  const auto [memory, owner] = regions_[access.region];
  if (owner != access.to || !isInside(access.offset, access.bytes, memory.size())) {
    onFailure(access.from, Error(ErrorKind::PeerLost, "the peer's memory is gone", {access.to}));
    return;
  }
  std::byte* const at = memory.data() + access.offset;
  switch (access.kind) {
    case Access::Kind::Put:
      std::memcpy(at, access.source, access.bytes);
      break;
    case Access::Kind::Get:
      std::memcpy(access.destination, at, access.bytes);
      break;
    case Access::Kind::Add:
      reinterpret_cast<std::atomic<uint64_t>*>(at)->fetch_add(access.value);
      break;
  }
  end(*access.transfer);
}

void ScheduledNetwork::happen(Event event) {
  if (event.kind == Event::Kind::Notice) {
    onFailure(event.to, Error(ErrorKind::PeerLost, sides_[event.to]->describe(event.from) + " died",
                              {event.from}));
    return;
  }
  if (isDead_[event.to]) return;
  if (isDead_[event.from] && (event.kind != Event::Kind::Arrive || random_.oneIn(2))) return;
  if (event.kind == Event::Kind::Access) return perform(*event.access);
  Flight& flight = this->flight(event.key);
  if (event.kind == Event::Kind::Arrive) return deliver(event.key, flight, event.chunk);
  if (flight.out == nullptr) return;  // given up
  Outbound& message = *flight.out;
  const std::byte* const data = message.data + event.chunk.offset;
  event.chunk.data.assign(data, data + event.chunk.bytes);
  flight.left += event.chunk.bytes;
  if (flight.left == message.bytes) {
    flight.out = nullptr;
    end(message);
  }
  event.kind = Event::Kind::Arrive;
  events_.push_back(std::move(event));
}

bool ScheduledNetwork::step() {
  if (events_.empty()) return false;
  const size_t size = sides_.size();
  size_t chosen = 0;
  // What is slow happens when the dice say so three times, or when nothing else can.
  for (int attempt = 0; attempt < 3; ++attempt) {
    chosen = random_.below(events_.size());
    if (!isSlow_[events_[chosen].from * size + events_[chosen].to]) break;
  }
  while (!mayHappen(events_[chosen])) chosen = (chosen + 1) % events_.size();
  Event event = std::move(events_[chosen]);
  if (chosen + 1 < events_.size()) events_[chosen] = std::move(events_.back());
  events_.pop_back();
  happen(std::move(event));
  return true;
}

void ScheduledNetwork::kill(int rank) {
  isDead_[rank] = true;
  for (int other = 0; other < static_cast<int>(sides_.size()); ++other) {
    if (other == rank) continue;
    events_.push_back({Event::Kind::Notice, rank, other, {}, {}, nullptr});
  }
}

}  // namespace ctran::testing
