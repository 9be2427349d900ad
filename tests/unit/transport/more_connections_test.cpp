// Several connections of a pair: what a peer can do on those beside the first, and what becomes of
// the pair when one of them ends, is refused, or never comes.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "tests/unit/support/descriptors.h"
#include "tests/unit/support/tcp_ranks.h"

namespace ctran::testing {
namespace {

constexpr size_t kBytes = 600'000;

std::vector<std::byte> pattern(size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 251);
  return data;
}

/// Ends a connection with an RST.
void reset(TcpSocket& socket) {
  const linger now{1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  socket.close();
}

/// Rank 0 with two connections to the test, which is rank 1.
class TwoConnections : public TcpPair {
 protected:
  TwoConnections() {
    say(frame(FrameType::Opened, 0));
    second_ = call(Purpose::More);
    until([&] { return transport_->connections(1) == 2; });
  }

  std::unique_ptr<Inbound> bind() {
    return transport_->receive({kCollectiveQueue, 0, 1}, 1, memory_.data(), memory_.size(), {});
  }
  void sayData(const TcpSocket& socket, size_t from, size_t to) {
    for (size_t bytes = 0; from < to; from += bytes) {
      bytes = std::min(kFrameBytes, to - from);
      say(socket, frame(FrameType::Data, bytes, from), std::span(data_).subspan(from, bytes));
    }
  }
  void pollForAWhile() {
    for (int i = 0; i < 100; ++i) transport_->poll();
  }

  const std::vector<std::byte> data_ = pattern(kBytes);
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes, std::byte{1});
  TcpSocket second_;
};

TEST_F(TwoConnections, CarryPartsOfOneMessageInAnyOrder) {
  const auto bound = bind();
  say(second_, frame(FrameType::Opened, 0));
  sayData(second_, 400'000, kBytes);
  sayData(socket_, 0, 100'000);
  sayData(second_, 100'000, 300'000);
  EXPECT_FALSE(ended(*bound));
  sayData(socket_, 300'000, 400'000);
  until([&] { return ended(*bound); });
  EXPECT_EQ(memory_, data_);
  EXPECT_EQ(error_, nullptr);
}

TEST_F(TwoConnections, DataOutsideOfWhatIsBoundIsRefusedOnEither) {
  const auto before = memory_;
  const auto bound = bind();
  say(second_, frame(FrameType::Data, 100, kBytes - 99), std::vector<std::byte>(100));
  expectLost("beyond the end");
  EXPECT_EQ(memory_, before);
}

TEST_F(TwoConnections, DataWhoseOffsetWrapsAroundIsRefusedOnEither) {
  const auto bound = bind();
  say(second_, frame(FrameType::Data, 100, UINT64_MAX - 49), std::vector<std::byte>(100));
  expectLost("beyond the end");
}

TEST_F(TwoConnections, OversizedDataIsRefusedOnEither) {
  const auto bound = bind();
  say(second_, frame(FrameType::Data, kFrameBytes + 1));
  expectLost("oversized");
}

TEST_F(TwoConnections, DataThatNobodyAskedForIsRefusedOnEither) {
  say(second_, frame(FrameType::Data, 100), std::vector<std::byte>(100));
  expectLost("nobody asked for");
}

TEST_F(TwoConnections, OnlyTheFirstCarriesOtherFramesThanData) {
  say(second_, frame(FrameType::Eager, 8), std::vector<std::byte>(8));
  expectLost("other frames than data");
}

TEST_F(TwoConnections, WhatComesTwiceIsNotWrittenOnceTheMessageHasEnded) {
  const auto bound = bind();
  const std::vector<std::byte> wrong(200'000, std::byte{9});
  // Half of a frame comes here, and all of the message there: the memory is the user's again.
  say(second_, frame(FrameType::Data, wrong.size()), {});
  say(second_, std::span(wrong).first(100'000));
  pollForAWhile();
  sayData(socket_, 0, kBytes);
  until([&] { return ended(*bound); });
  const auto then = memory_;
  say(second_, std::span(wrong).last(100'000));
  say(second_, frame(FrameType::Goodbye, 0));
  say(frame(FrameType::Goodbye, 0));
  until([&] { return knowsThatTheOtherLeft(); });
  EXPECT_EQ(memory_, then);
  EXPECT_EQ(error_, nullptr);
}

TEST_F(TwoConnections, AResetOfEitherLosesThePeer) {
  const auto bound = bind();
  say(second_, frame(FrameType::Opened, 0));
  sayData(second_, 0, 1000);
  reset(second_);
  expectLost("onnection");
  EXPECT_EQ(transport_->connections(1), 0);
}

TEST_F(TwoConnections, AResetOfTheFirstLosesThePeer) {
  reset(socket_);
  expectLost("onnection");
  EXPECT_EQ(transport_->connections(1), 0);
}

TEST_F(TwoConnections, OneThatItsCallerHasNeverUsedIsNotMissed) {
  const auto bound = bind();
  reset(second_);
  until([&] { return transport_->connections(1) == 1; });
  sayData(socket_, 0, kBytes);
  until([&] { return ended(*bound); });
  EXPECT_EQ(memory_, data_);
  EXPECT_EQ(error_, nullptr);
  EXPECT_TRUE(call(Purpose::More));  // it may come again
}

TEST_F(TwoConnections, WhoHasSaidGoodbyeOnTheFirstMayStillBringDataOnTheOther) {
  const auto bound = bind();
  say(second_, frame(FrameType::Opened, 0));
  sayData(socket_, 0, 300'000);
  say(frame(FrameType::Goodbye, 0));
  ::shutdown(socket_.get(), SHUT_WR);
  pollForAWhile();
  EXPECT_FALSE(knowsThatTheOtherLeft());
  EXPECT_TRUE(transport_->mayHear(1));
  sayData(second_, 300'000, kBytes);
  until([&] { return ended(*bound); });
  EXPECT_EQ(memory_, data_);
  say(second_, frame(FrameType::Goodbye, 0));
  until([&] { return knowsThatTheOtherLeft(); });
  EXPECT_FALSE(transport_->mayHear(1));
  EXPECT_EQ(error_, nullptr);
}

TEST_F(TwoConnections, WhoHasLeftIsKnownToHaveWhenTheOtherWasNeverUsed) {
  say(frame(FrameType::Goodbye, 0));
  second_.close();
  until([&] { return knowsThatTheOtherLeft(); });
  EXPECT_EQ(error_, nullptr);
}

TEST_F(TwoConnections, WhoDiesWithDataOnTheOtherHasNotLeft) {
  const auto bound = bind();
  say(second_, frame(FrameType::Opened, 0));
  sayData(second_, 0, 1000);
  say(frame(FrameType::Goodbye, 0));
  pollForAWhile();
  reset(second_);
  expectLost("onnection");
  EXPECT_FALSE(knowsThatTheOtherLeft());
}

TEST_F(TwoConnections, NoMoreThanSomeAreLetIn) {
  std::vector<TcpSocket> more;
  for (size_t i = 2; i < kMaxConnections; ++i) {
    more.push_back(call(Purpose::More));
    EXPECT_TRUE(more.back());
  }
  EXPECT_FALSE(call(Purpose::More));
  EXPECT_EQ(refusal_, Verdict::Enough);
  EXPECT_EQ(transport_->connections(1), static_cast<int>(kMaxConnections));
  EXPECT_EQ(transport_->connections(), 1);
  EXPECT_EQ(error_, nullptr);
}

TEST_F(TwoConnections, WhoHasLeftIsNotLetInAgain) {
  say(second_, frame(FrameType::Goodbye, 0));
  say(frame(FrameType::Goodbye, 0));
  socket_.close();
  until([&] { return transport_->connections() == 0; });
  EXPECT_FALSE(call(Purpose::More));
  EXPECT_EQ(refusal_, Verdict::Enough);
}

/// Sets CTRAN_TCP_CONNECTIONS while it lives.
class Wanted {
 public:
  explicit Wanted(int connections) {
    ::setenv("CTRAN_TCP_CONNECTIONS", std::to_string(connections).c_str(), 1);
  }
  ~Wanted() { ::unsetenv("CTRAN_TCP_CONNECTIONS"); }
};

bool has(const Transmission& message) {
  Condition condition = message.ended();
  return condition.holds();
}

TEST(SeveralConnections, AreMadeForLargeMessagesWhoeverSends) {
  const Wanted wanted(4);
  for (const int sender : {0, 1}) {
    TcpSide sides[2] = {TcpSide(0), TcpSide(1)};
    TcpSide::introduce(sides[0], sides[1]);
    const auto data = pattern(8 << 20);
    std::vector<std::byte> memory(data.size());
    const auto received = sides[1 - sender].receive(memory[0], memory.size());
    const auto sent = sides[sender].send(data[0], data.size());
    pollUntil({&sides[0], &sides[1]}, [&] { return has(*received) && has(*sent); });
    EXPECT_EQ(memory, data);
    pollUntil({&sides[0], &sides[1]}, [&] {
      return sides[0].transport().connections(1) == 4 && sides[1].transport().connections(0) == 4;
    });
    EXPECT_EQ(sides[0].error, nullptr);
    EXPECT_EQ(sides[1].error, nullptr);
  }
}

/// Rank 1 of a pair is short of descriptors while it does anything; whether they have a connection
/// before. Both want four, for a large message. What then becomes of it: no error, or rank 1's.
template <class Shortage>
std::unique_ptr<Error> errorOfOneThatLacksDescriptors(bool connected) {
  const Wanted wanted(4);
  TcpSide sides[2] = {TcpSide(0), TcpSide(1)};
  TcpSide::introduce(sides[0], sides[1]);
  const auto data = pattern(8 << 20);
  std::vector<std::byte> memory(data.size());
  if (connected) {
    sides[0].transport().connect(1);
    pollUntil({&sides[0], &sides[1]}, [&] { return sides[1].transport().connections(0) == 1; });
  }
  const auto received = sides[1].receive(memory[0], memory.size());
  const auto sent = sides[0].send(data[0], data.size());
  pollUntil({}, [&] {
    sides[0].poll(1);
    const Shortage none;
    sides[1].poll(1);
    return (has(*received) && has(*sent)) || sides[1].error != nullptr;
  });
  if (sides[1].error == nullptr) {
    EXPECT_EQ(memory, data);
    EXPECT_EQ(sides[0].transport().connections(1), 1);
    EXPECT_EQ(sides[1].transport().connections(0), 1);
    EXPECT_EQ(sides[0].error, nullptr);
  }
  return std::move(sides[1].error);
}

TEST(SeveralConnections, AreDoneWithoutWhereNoDescriptorIsLeft) {
  EXPECT_EQ(errorOfOneThatLacksDescriptors<NoDescriptors>(/*connected=*/true), nullptr);
  EXPECT_EQ(errorOfOneThatLacksDescriptors<AllDescriptorsInUse>(/*connected=*/true), nullptr);
}

/// There is one that is kept for whoever calls first.
TEST(SeveralConnections, AreReducedToOneWhereAllDescriptorsAreInUse) {
  EXPECT_EQ(errorOfOneThatLacksDescriptors<AllDescriptorsInUse>(/*connected=*/false), nullptr);
}

/// Who can let nobody in, and knows of a rank that may need it, says so.
TEST(SeveralConnections, TheFirstOfWhichCannotBeHadFailTheRankThatLacksDescriptors) {
  const auto error = errorOfOneThatLacksDescriptors<NoDescriptors>(/*connected=*/false);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->kind(), ErrorKind::System);
  EXPECT_EQ(error->ranks(), std::vector<int>{1});
  EXPECT_NE(std::string(error->what()).find("Too many open files"), std::string::npos);
}

TEST(SeveralConnections, AreNotMadeForSmallMessages) {
  const Wanted wanted(4);
  TcpSide sides[2] = {TcpSide(0), TcpSide(1)};
  TcpSide::introduce(sides[0], sides[1]);
  const auto data = pattern(kEagerBytes);
  std::vector<std::byte> memory(data.size());
  const auto received = sides[1].receive(memory[0], memory.size());
  const auto sent = sides[0].send(data[0], data.size());
  pollUntil({&sides[0], &sides[1]}, [&] { return has(*received) && has(*sent); });
  for (TcpSide& side : sides) side.poll(100);
  EXPECT_EQ(sides[0].transport().connections(1), 1);
}

/// The other ones are on their way, or there, when a rank leaves: whatever it has sent arrives.
TEST(SeveralConnections, WhatWasSentByOneThatLeavesArrives) {
  const Wanted wanted(4);
  const auto data = pattern(2 << 20);
  for (const int sender : {0, 1}) {
    for (int polls = 0; polls < 8; ++polls) {
      TcpSide sides[2] = {TcpSide(0), TcpSide(1)};
      TcpSide::introduce(sides[0], sides[1]);
      TcpSide &one = sides[sender], &other = sides[1 - sender];
      std::vector<std::byte> memory(data.size());
      const auto received = other.receive(memory[0], memory.size());
      const auto sent = one.send(data[0], data.size());
      pollUntil({&one, &other}, [&] { return has(*sent); });
      for (int i = 0; i < polls; ++i) {
        one.poll(1);
        other.poll(1);
      }
      std::thread leaving([&] { one.transport().leave(kGuard); });
      pollUntil({&other}, [&] { return has(*received) && other.knowsThatTheOtherLeft(); });
      leaving.join();
      EXPECT_EQ(memory, data);
      EXPECT_EQ(other.error, nullptr) << other.error->what();
      other.transport().leave(kGuard);
    }
  }
}

TEST(SeveralConnections, WhoDiesIsLost) {
  const Wanted wanted(4);
  const auto data = pattern(2 << 20);
  for (int polls = 0; polls < 12; ++polls) {
    TcpSide sides[2] = {TcpSide(0), TcpSide(1)};
    TcpSide::introduce(sides[0], sides[1]);
    std::vector<std::byte> memory(data.size());
    auto sent = sides[1].send(data[0], data.size());
    const auto received = sides[0].receive(memory[0], memory.size());
    for (int i = 0; i < polls; ++i) {
      sides[1].poll(1);
      sides[0].poll(1);
    }
    const bool all = has(*sent);
    sent.reset();
    sides[1].die();
    pollUntil({&sides[0]}, [&] { return sides[0].error != nullptr || (all && has(*received)); });
    if (has(*received)) {
      EXPECT_EQ(memory, data);
    } else {
      EXPECT_EQ(sides[0].error->kind(), ErrorKind::PeerLost) << sides[0].error->what();
    }
  }
}

/// A peer that lets nobody in but once: the pair goes on with one connection.
TEST(SeveralConnections, ThatAreRefusedAreDoneWithout) {
  const Wanted wanted(4);
  TcpSide one(0);
  std::unique_ptr<Acceptor> door = one.introduceTo();
  const auto data = pattern(2 << 20);
  TcpSocket socket;
  int refused = 0;
  const auto hear = [&] {
    one.poll(1);
    door->poll(
        [&](const Introduction& who) {
          refused += who.purpose == Purpose::More;
          return who.purpose == Purpose::Link ? Verdict::Welcome : Verdict::Enough;
        },
        [&](const Introduction&, TcpSocket taken) { socket = std::move(taken); });
  };
  const auto sent = one.send(data[0], data.size());
  pollUntil({}, [&] {
    hear();
    return refused == 3;
  });
  FrameHeader ready{FrameType::Ready, 0, {kCollectiveQueue, 0, 1}, data.size()};
  ASSERT_EQ(writeSome(socket, std::as_bytes(std::span(&ready, 1))).bytes, sizeof ready);
  std::vector<std::byte> stream(2 * data.size());
  size_t got = 0;
  pollUntil({}, [&] {
    hear();
    got += readSome(socket, std::span(stream).subspan(got)).bytes;
    return got >= data.size() && has(*sent);
  });
  EXPECT_EQ(one.transport().connections(1), 1);
  EXPECT_EQ(one.error, nullptr);
}

}  // namespace
}  // namespace ctran::testing
