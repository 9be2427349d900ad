// Two ranks of a TCP transport without an engine above them: one against the test, or both.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "ctran/base/clock.h"
#include "ctran/transport/tcp/transport.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {

/// Of a rank that says it is on host "somewhere", with process id 1.
inline Places placeOf(int rank, const Acceptor& acceptor) {
  Place place;
  place.rank = rank;
  place.pid = 1;
  place.port = acceptor.addresses().front().port;
  Site site = Site::at("here/" + std::to_string(rank), acceptor.addresses());
  site.name = {};
  std::strcpy(site.name.data(), "somewhere");
  return {place, site};
}

/// Rank 0 of a world of two; rank 1 is the test, which speaks for itself.
class TcpPair : public ::testing::Test, public TcpTransport::Listener {
 protected:
  TcpPair() {
    Hosts hosts;
    hosts.key = key_;
    hosts.acceptor = std::make_unique<Acceptor>(localAddresses(), key_, 0, 2);
    address_ = hosts.acceptor->addresses().back();
    // Of the other nobody knows an address.
    Site nowhere;
    std::strcpy(nowhere.name.data(), "somewhere");
    Place other;
    other.rank = 1;
    other.pid = 1;
    hosts.places = Places::merged(std::array{placeOf(0, *hosts.acceptor), Places(other, nowhere)});
    const size_t bytes = Board::bytesFor(1);
    board_ = std::make_unique<Board>(SharedMapping::map(createSharedMemory("test", bytes), bytes),
                                     0, 2, false);
    transport_ = std::make_unique<TcpTransport>(*board_, std::move(hosts), *this);
    socket_ = call(Purpose::Link);
  }

  /// One more connection, if this is not the first; none if it is refused.
  TcpSocket call(Purpose purpose) {
    Connector connector({address_}, key_, {1, 2, 0, purpose});
    auto state = Connector::State::Pending;
    until([&] { return (state = connector.poll()) != Connector::State::Pending; });
    if (state == Connector::State::Welcome) return connector.takeSocket();
    EXPECT_EQ(state, Connector::State::Refused) << connector.why();
    refusal_ = connector.verdict();
    return {};
  }

  void failed(const Error& error) override { error_ = std::make_unique<Error>(error); }
  void wakeUp() override {}

  void until(const std::function<bool()>& condition) {
    const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kGuard).count();
    while (!condition()) {
      transport_->poll();
      if (nowNanos() > giveUp) {
        ADD_FAILURE() << "gave up waiting";
        return;
      }
    }
  }

  void say(const FrameHeader& frame, std::span<const std::byte> payload = {}) {
    say(socket_, frame, payload);
  }
  void say(const TcpSocket& socket, const FrameHeader& frame,
           std::span<const std::byte> payload = {}) {
    std::vector<std::byte> all(sizeof frame + payload.size());
    std::memcpy(all.data(), &frame, sizeof frame);
    if (!payload.empty()) std::memcpy(all.data() + sizeof frame, payload.data(), payload.size());
    say(socket, all);
  }

  void say(const TcpSocket& socket, std::span<const std::byte> bytes) {
    size_t sent = 0;
    until([&] {
      const IoResult written = writeSome(socket, bytes.subspan(sent));
      sent += written.bytes;
      return sent == bytes.size() || written.end == IoResult::End::Failed;
    });
  }

  static FrameHeader frame(FrameType type, size_t bytes, uint64_t offset = 0,
                           const MessageName& name = {kCollectiveQueue, 0, 1}) {
    FrameHeader header{type, static_cast<uint32_t>(bytes), name, offset};
    header.signature = 7;
    return header;
  }

  void expectLost(const std::string& why) {
    until([&] { return error_ != nullptr; });
    ASSERT_NE(error_, nullptr);
    EXPECT_EQ(error_->kind(), ErrorKind::PeerLost);
    EXPECT_EQ(error_->ranks(), std::vector<int>{1});
    EXPECT_NE(std::string(error_->what()).find(why), std::string::npos) << error_->what();
    EXPECT_NE(std::string(error_->what()).find("somewhere (pid 1)"), std::string::npos);
    EXPECT_EQ(transport_->connections(), 0);
  }

  static bool ended(const Transmission& message) {
    Condition condition = message.ended();
    return condition.holds();
  }

  bool knowsThatTheOtherLeft() { return board_->control(1).state.load() == Board::RankState::Left; }

  const JobKey key_ = randomKey();
  NetAddress address_;
  Verdict refusal_ = Verdict::Welcome;
  std::unique_ptr<Board> board_;
  std::unique_ptr<TcpTransport> transport_;
  std::unique_ptr<Error> error_;
  TcpSocket socket_;
};

/// One of two ranks, both of them here.
class TcpSide : public TcpTransport::Listener {
 public:
  explicit TcpSide(int rank) : rank_(rank), board_(memory(), rank, 2, false) {}

  static void introduce(TcpSide& a, TcpSide& b) {
    const JobKey key = randomKey();
    std::unique_ptr<Acceptor> doormen[2];
    std::vector<Places> parts;
    for (int r = 0; r < 2; ++r) {
      doormen[r] = std::make_unique<Acceptor>(localAddresses(), key, r, 2);
      parts.push_back(placeOf(r, *doormen[r]));
    }
    const Places places = Places::merged(parts);
    for (TcpSide* side : {&a, &b}) {
      Hosts hosts;
      hosts.key = key;
      hosts.places = places;
      hosts.acceptor = std::move(doormen[side->rank_]);
      side->transport_ = std::make_unique<TcpTransport>(side->board_, std::move(hosts), *side);
    }
  }

  /// The other rank is the test, who lets callers in.
  std::unique_ptr<Acceptor> introduceTo() {
    Hosts hosts;
    hosts.key = randomKey();
    hosts.acceptor = std::make_unique<Acceptor>(localAddresses(), hosts.key, rank_, 2);
    auto other = std::make_unique<Acceptor>(localAddresses(), hosts.key, 1 - rank_, 2);
    hosts.places =
        Places::merged(std::array{placeOf(rank_, *hosts.acceptor), placeOf(1 - rank_, *other)});
    transport_ = std::make_unique<TcpTransport>(board_, std::move(hosts), *this);
    return other;
  }

  TcpTransport& transport() { return *transport_; }
  void call() { transport_->connect(1 - rank_); }
  /// `times` polls, between which nobody else does anything.
  void poll(int times) {
    for (int i = 0; i < times; ++i) transport_->poll();
  }
  void die() { transport_.reset(); }
  std::unique_ptr<Inbound> receive(std::byte& to, size_t bytes = 1) {
    return transport_->receive({kCollectiveQueue, 0, 1}, 1 - rank_, &to, bytes, {});
  }
  std::unique_ptr<Outbound> send(const std::byte& from, size_t bytes = 1) {
    return transport_->send({kCollectiveQueue, 0, 1}, 1 - rank_, &from, bytes, {});
  }
  bool knowsThatTheOtherLeft() {
    return board_.control(1 - rank_).state.load() == Board::RankState::Left;
  }

  std::unique_ptr<Error> error;

 private:
  static std::shared_ptr<SharedMapping> memory() {
    const size_t bytes = Board::bytesFor(1);
    return SharedMapping::map(createSharedMemory("test", bytes), bytes);
  }
  void failed(const Error& what) override { error = std::make_unique<Error>(what); }
  void wakeUp() override {}

  const int rank_;
  Board board_;
  std::unique_ptr<TcpTransport> transport_;
};

template <class Condition>
void pollUntil(std::initializer_list<TcpSide*> sides, Condition condition) {
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kGuard).count();
  while (!condition()) {
    for (TcpSide* side : sides) side->poll(1);
    if (nowNanos() > giveUp) {
      ADD_FAILURE() << "gave up waiting";
      return;
    }
  }
}

}  // namespace ctran::testing
