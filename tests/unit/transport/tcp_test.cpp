// What an authenticated peer that breaks the rules can do: nothing but lose its connection. And
// what two ranks see of each other when one leaves or dies, whatever their connection has come to.
#include <gtest/gtest.h>

#include <climits>

#include "ctran/transport/tcp/failure.h"
#include "tests/unit/support/tcp_ranks.h"

namespace ctran::testing {
namespace {

using Pair = TcpPair;
using Side = TcpSide;

TEST_F(Pair, EagerMessageGoesWhereItIsBoundBeforeOrAfter) {
  const std::vector<std::byte> data(100, std::byte{3});
  std::vector<std::byte> first(100), second(100);
  const auto before = transport_->receive({kCollectiveQueue, 0, 1}, 1, first.data(), 100, {});
  say(frame(FrameType::Eager, 100), data);
  say(frame(FrameType::Eager, 100, 0, {kCollectiveQueue, 1, 1}), data);
  until([&] { return ended(*before); });
  EXPECT_EQ(first, data);
  const auto after = transport_->receive({kCollectiveQueue, 1, 1}, 1, second.data(), 100, {});
  until([&] { return ended(*after); });
  EXPECT_EQ(second, data);
  EXPECT_EQ(after->other.operation.signature, 7u);
  EXPECT_EQ(error_, nullptr);
}

TEST_F(Pair, DataFrameOutsideOfWhatIsBoundIsRefused) {
  std::vector<std::byte> memory(200'000, std::byte{1});
  const auto before = memory;
  const auto bound = transport_->receive({kCollectiveQueue, 0, 1}, 1, memory.data(), 150'000, {});
  say(frame(FrameType::Data, 100, 149'901), std::vector<std::byte>(100, std::byte{9}));
  expectLost("beyond the end");
  EXPECT_EQ(memory, before);
}

TEST_F(Pair, DataFrameWhoseOffsetWrapsAroundIsRefused) {
  std::vector<std::byte> memory(150'000);
  const auto bound =
      transport_->receive({kCollectiveQueue, 0, 1}, 1, memory.data(), memory.size(), {});
  say(frame(FrameType::Data, 100, UINT64_MAX - 49), std::vector<std::byte>(100));
  expectLost("beyond the end");
}

TEST_F(Pair, DataThatNobodyAskedForIsRefused) {
  say(frame(FrameType::Data, 100), std::vector<std::byte>(100));
  expectLost("nobody asked for");
}

TEST_F(Pair, OversizedFramesAreRefusedByTheirHeader) {
  say(frame(FrameType::Eager, kEagerBytes + 1));
  expectLost("oversized");
}

TEST_F(Pair, OversizedDataFrameIsRefusedThoughItWouldFit) {
  std::vector<std::byte> memory(kFrameBytes + 100);
  const auto bound =
      transport_->receive({kCollectiveQueue, 0, 1}, 1, memory.data(), memory.size(), {});
  say(frame(FrameType::Data, kFrameBytes + 1));
  expectLost("oversized");
}

TEST_F(Pair, GigabytesThatAHeaderPromisesAreNotAllocated) {
  say(frame(FrameType::Failure, UINT32_MAX));
  expectLost("oversized");
}

TEST_F(Pair, FramesThatMakeNoSenseAreRefused) {
  say(frame(static_cast<FrameType>(99), 0));
  expectLost("unknown type");
}

TEST_F(Pair, AFrameOfAnUnknownLaneIsRefused) {
  say(frame(FrameType::Eager, 0, 0, {kQueues, 0, 1}));
  expectLost("unknown queue");
}

TEST_F(Pair, WhoSendsBeyondItsWindowIsRefused) {
  const std::vector<std::byte> data(kEagerBytes);
  for (uint32_t i = 0; i <= kEagerWindow / kEagerBytes; ++i) {
    say(frame(FrameType::Eager, data.size(), 0, {kCollectiveQueue, i, 1}), data);
  }
  expectLost("more than there is room for");
}

TEST_F(Pair, WhoGivesBackMoreThanItWasSentIsRefused) {
  say(frame(FrameType::Credit, 0, 1));
  expectLost("gave back more");
}

TEST_F(Pair, EndlessPromisesAreRefused) {
  for (uint32_t i = 0; i <= kMaxPromises; ++i) {
    say(frame(FrameType::Announce, 0, 1 << 20, {kCollectiveQueue, i, 1}));
  }
  expectLost("too many");
}

TEST_F(Pair, AMessageThatComesTwiceIsRefused) {
  const std::vector<std::byte> data(10);
  say(frame(FrameType::Eager, 10), data);
  say(frame(FrameType::Eager, 10), data);
  expectLost("twice");
}

TEST_F(Pair, AnEndOfStreamWithoutGoodbyeIsALossAndNoneAfterIt) {
  say(frame(FrameType::Goodbye, 0));
  socket_.close();
  until([&] { return transport_->connections() == 0; });
  EXPECT_EQ(error_, nullptr);
  EXPECT_EQ(board_->control(1).state.load(), Board::RankState::Left);
}

TEST_F(Pair, AnEndOfStreamIsALoss) {
  say(frame(FrameType::Opened, 0));
  socket_.close();
  expectLost("closed the connection");
}

TEST_F(Pair, ACallerThatHangsUpBeforeItWasHeardIsNoLossUnlessItIsNeeded) {
  EXPECT_EQ(transport_->connections(), 1);
  socket_.close();
  until([&] { return transport_->connections() == 0; });
  EXPECT_EQ(error_, nullptr);
  std::byte memory[8];
  const auto bound = transport_->receive({kCollectiveQueue, 0, 1}, 1, memory, sizeof memory, {});
  expectLost("no address");  // it is called back
}

TEST_F(Pair, ACallerThatHangsUpWhileItIsNeededIsCalledBack) {
  std::byte memory[8];
  const auto bound = transport_->receive({kCollectiveQueue, 0, 1}, 1, memory, sizeof memory, {});
  socket_.close();
  expectLost("no address");
}

TEST_F(Pair, NothingIsSentToACallerThatWasNotHeardYet) {
  const std::byte memory[8]{};
  const auto sent = transport_->send({kCollectiveQueue, 0, 1}, 1, memory, sizeof memory, {});
  for (int i = 0; i < 100; ++i) transport_->poll();
  EXPECT_FALSE(ended(*sent));
  std::byte anything;
  EXPECT_EQ(readSome(socket_, {&anything, 1}).end, IoResult::End::WouldBlock);
  say(frame(FrameType::Opened, 0));
  until([&] { return ended(*sent); });
}

TEST_F(Pair, WhoLeavesSaysGoodbyeToACallerThatWasNotHeardYet) {
  transport_->leave(kGuard);
  FrameHeader header;
  const IoResult read = readSome(socket_, std::as_writable_bytes(std::span(&header, 1)));
  EXPECT_EQ(read.bytes, sizeof header);
  EXPECT_EQ(header.type, FrameType::Goodbye);
}

TEST_F(Pair, AMessageOfAnotherSizeIsToldToItsReceiver) {
  std::vector<std::byte> memory(64);
  const auto bound = transport_->receive({kCollectiveQueue, 0, 1}, 1, memory.data(), 64, {});
  say(frame(FrameType::Eager, 32), std::vector<std::byte>(32));
  until([&] { return ended(*bound); });
  EXPECT_TRUE(bound->isWrong);
  EXPECT_EQ(bound->other.bytes, 32u);
  EXPECT_EQ(error_, nullptr);
}

TEST_F(Pair, EndedBindingIsNotWrittenTo) {
  std::vector<std::byte> memory(300'000, std::byte{1});
  const auto before = memory;
  auto bound = transport_->receive({kCollectiveQueue, 0, 1}, 1, memory.data(), memory.size(), {});
  FrameHeader header = frame(FrameType::Data, 200'000);
  // The header and half of the payload come; then the operation ends.
  say(header, std::vector<std::byte>(100'000, std::byte{9}));
  for (int i = 0; i < 100; ++i) transport_->poll();
  bound.reset();
  const auto now = memory;
  const std::vector<std::byte> rest(100'000, std::byte{9});
  size_t sent = 0;
  until([&] {
    sent += writeSome(socket_, std::span<const std::byte>(rest).subspan(sent)).bytes;
    return sent == rest.size();
  });
  say(frame(FrameType::Goodbye, 0));
  until([&] { return board_->control(1).state.load() == Board::RankState::Left; });
  EXPECT_EQ(memory, now);
  EXPECT_EQ(error_, nullptr);
}

/// The ways in which two ranks come to a connection: who calls, and how far each has come.
struct Stage {
  bool calls[2];
  int polls[2];
  int turns;
};

std::vector<Stage> stages() {
  std::vector<Stage> all;
  for (const auto& [low, high] : {std::pair{true, true}, {true, false}, {false, true}}) {
    for (int turns = 0; turns < 5; ++turns) {
      for (const auto& [a, b] : {std::pair{1, 1}, {1, 2}, {4, 0}, {0, 4}}) {
        if (turns == 0 && (a != 1 || b != 1)) continue;
        all.push_back({{low, high}, {a, b}, turns});
      }
    }
  }
  return all;
}

/// Runs `then` for each stage, or every so many, and for each of the two as the one to whom
/// something happens.
void atEachStage(const std::function<void(Side& one, Side& other)>& then, size_t stride = 1) {
  const std::vector<Stage> all = stages();
  for (size_t i = 0; i < all.size(); i += stride) {
    const Stage& stage = all[i];
    for (int who = 0; who < 2; ++who) {
      SCOPED_TRACE(::testing::Message()
                   << "rank " << who << ", " << stage.turns << " turns of " << stage.polls[0]
                   << " and " << stage.polls[1] << (stage.calls[0] ? " 0 calls" : "")
                   << (stage.calls[1] ? " 1 calls" : ""));
      Side sides[2] = {Side(0), Side(1)};
      Side::introduce(sides[0], sides[1]);
      for (int r = 0; r < 2; ++r) {
        if (stage.calls[r]) sides[r].call();
      }
      for (int turn = 0; turn < stage.turns; ++turn) {
        for (int r = 0; r < 2; ++r) sides[r].poll(stage.polls[r]);
      }
      then(sides[who], sides[1 - who]);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(TwoRanks, WhoLeavesIsNeverALoss) {
  atEachStage([](Side& one, Side& other) {
    one.transport().leave(kGuard);
    pollUntil({&other}, [&] { return other.transport().connections() == 0; });
    other.poll(100);
    EXPECT_EQ(other.transport().connections(), 0);
    EXPECT_EQ(other.error, nullptr) << other.error->what();
    other.transport().leave(kGuard);
    EXPECT_EQ(other.error, nullptr) << other.error->what();
  });
}

TEST(TwoRanks, WhatWasSentByOneThatLeavesArrives) {
  atEachStage([](Side& one, Side& other) {
    const std::byte from{17};
    std::byte to{};
    const auto sent = one.send(from);
    const auto isSent = [&] { return Condition(sent->ended()).holds(); };
    pollUntil({&one, &other}, isSent);
    one.transport().leave(kGuard);
    const auto received = other.receive(to);
    pollUntil({&other}, [&] { return Condition(received->ended()).holds(); });
    EXPECT_EQ(to, from);
    pollUntil({&other}, [&] { return other.knowsThatTheOtherLeft(); });
    EXPECT_EQ(other.error, nullptr) << other.error->what();
  });
}

TEST(TwoRanks, WhoDiesIsLostToOneThatNeedsIt) {
  atEachStage([](Side& one, Side& other) {
    std::byte to{};
    const auto received = other.receive(to);
    one.die();
    pollUntil({&other}, [&] { return other.error != nullptr; });
    ASSERT_NE(other.error, nullptr);
    EXPECT_EQ(other.error->kind(), ErrorKind::PeerLost);
  });
}

TEST(TwoRanks, WhoHasDiedIsLostToOneThatSendsToIt) {
  const std::vector<std::byte> data(kEagerBytes + 1);
  for (const size_t bytes : {size_t{1}, data.size()}) {
    atEachStage([&](Side& one, Side& other) {
      one.die();
      const auto sent = other.send(data[0], bytes);
      pollUntil({&other}, [&] { return other.error != nullptr; });
      ASSERT_NE(other.error, nullptr);
      EXPECT_EQ(other.error->kind(), ErrorKind::PeerLost);
    });
  }
}

TEST(TwoRanks, FindEachOtherHoweverBothBegin) {
  atEachStage([](Side& one, Side& other) {
    const std::byte from[2] = {std::byte{1}, std::byte{2}};
    std::byte to[2] = {};
    const auto first = one.receive(to[0]), second = other.receive(to[1]);
    const auto back = one.send(from[1]), forth = other.send(from[0]);
    pollUntil({&one, &other}, [&] {
      return Condition(first->ended()).holds() && Condition(second->ended()).holds();
    });
    EXPECT_EQ(to[0], from[0]);
    EXPECT_EQ(to[1], from[1]);
    EXPECT_EQ(one.transport().connections(), 1);
    EXPECT_EQ(other.transport().connections(), 1);
  });
}

TEST(TwoRanks, AFailureIsToldToOneThatCallsLater) {
  atEachStage(
      [](Side& one, Side& other) {
        one.transport().tell(Error(ErrorKind::Aborted, "enough"));
        other.call();
        pollUntil({&one, &other}, [&] { return other.error != nullptr; });
        ASSERT_NE(other.error, nullptr);
        EXPECT_EQ(other.error->kind(), ErrorKind::Aborted) << other.error->what();
      },
      5);  // telling waits a while for those who do not listen
}

TEST_F(Pair, DataOfAMessageWhoseOperationHasFailedIsDropped) {
  std::vector<std::byte> memory(300'000, std::byte{1});
  const auto before = memory;
  auto bound = transport_->receive({kCollectiveQueue, 0, 1}, 1, memory.data(), memory.size(), {});
  bound.reset();
  say(frame(FrameType::Data, 1000), std::vector<std::byte>(1000, std::byte{9}));
  say(frame(FrameType::Goodbye, 0));
  until([&] { return board_->control(1).state.load() == Board::RankState::Left; });
  EXPECT_EQ(memory, before);
  EXPECT_EQ(error_, nullptr);
}

/// More large messages than a peer takes announcements of: both ends come to them in any order.
TEST(TwoRanks, MoreLargeMessagesAtOnceThanCanBePromised) {
  constexpr uint32_t kMessages = kMaxPromises + 100;
  constexpr size_t kBytes = kEagerBytes + 1;
  std::vector<std::byte> from(kBytes, std::byte{42}), to(kBytes);
  const auto nameOf = [](uint32_t i) { return MessageName{kMessageQueue, i, 1}; };
  for (const bool receivesFirst : {true, false}) {
    for (const bool sameOrder : {true, false}) {
      TcpSide a(0), b(1);
      TcpSide::introduce(a, b);
      std::vector<std::unique_ptr<Transmission>> sent, received;
      const auto sendAll = [&] {
        for (uint32_t i = 0; i < kMessages; ++i) {
          sent.push_back(a.transport().send(nameOf(i), 1, from.data(), kBytes, {}));
        }
      };
      const auto receiveAll = [&] {
        for (uint32_t i = 0; i < kMessages; ++i) {
          const auto name = nameOf(sameOrder ? i : kMessages - 1 - i);
          received.push_back(b.transport().receive(name, 0, to.data(), kBytes, {}));
        }
      };
      const auto settle = [&] {
        for (int i = 0; i < 200; ++i) {
          a.poll(1);
          b.poll(1);
        }
      };
      receivesFirst ? receiveAll() : sendAll();
      settle();
      receivesFirst ? sendAll() : receiveAll();
      const auto all = [](const auto& messages) {
        return std::all_of(messages.begin(), messages.end(),
                           [](const auto& message) { return message->ended().holds(); });
      };
      pollUntil({&a, &b}, [&] { return (all(sent) && all(received)) || a.error || b.error; });
      ASSERT_EQ(a.error, nullptr) << a.error->what();
      ASSERT_EQ(b.error, nullptr) << b.error->what();
      EXPECT_EQ(to, from);
    }
  }
}

/// As a receive of one tag does, posted after thousands of others that wait.
TEST(TwoRanks, AMessageIsNotHeldUpByThoseThatTheOtherEndHasNotComeTo) {
  constexpr uint32_t kWaiting = kMaxPromises + 100;
  constexpr size_t kBytes = kEagerBytes + 1;
  std::vector<std::byte> from(kBytes, std::byte{42}), to(kBytes);
  TcpSide a(0), b(1);
  TcpSide::introduce(a, b);
  std::vector<std::unique_ptr<Inbound>> waiting;
  for (uint32_t i = 0; i < kWaiting; ++i) {
    waiting.push_back(b.transport().receive({kMessageQueue, i, 1}, 0, to.data(), kBytes, {}));
  }
  // The last of those that wait, and one that comes after it.
  for (const uint32_t i : {kWaiting - 1, kWaiting}) {
    const auto outbound = a.transport().send({kMessageQueue, i, 1}, 1, from.data(), kBytes, {});
    if (i == kWaiting) {
      waiting.push_back(b.transport().receive({kMessageQueue, i, 1}, 0, to.data(), kBytes, {}));
    }
    pollUntil({&a, &b}, [&] { return waiting[i]->ended().holds() || a.error || b.error; });
    ASSERT_EQ(b.error, nullptr) << b.error->what();
    EXPECT_EQ(to, from);
  }
}

TEST(Failures, TravelAsTheyAre) {
  const Error error(ErrorKind::Mismatch, "what happened", {3, 5}, "all_reduce", "what to try");
  const Error same = parseFailure(serializeFailure(error, 4), 9, 10);
  EXPECT_EQ(same.kind(), error.kind());
  EXPECT_EQ(same.ranks(), error.ranks());
  EXPECT_EQ(same.op(), error.op());
  EXPECT_EQ(same.hint(), error.hint());
  EXPECT_NE(std::string(same.what()).find("what happened"), std::string::npos);
  EXPECT_NE(std::string(same.what()).find("reported by rank 4"), std::string::npos);
  EXPECT_NE(std::string(same.what()).find("passed on by rank 9"), std::string::npos);
  // However many have passed it on, the last is named.
  const std::string twice = parseFailure(serializeFailure(same, 9), 7, 10).what();
  EXPECT_EQ(twice.find("passed on by rank 9"), std::string::npos) << twice;
  EXPECT_NE(twice.find("passed on by rank 7"), std::string::npos) << twice;
  const std::string told = parseFailure(serializeFailure(error, 9), 9, 10).what();
  EXPECT_EQ(told.find("passed on"), std::string::npos) << told;
}

TEST(Failures, OfRanksThatAreNoneNameTheSender) {
  const Error error(ErrorKind::PeerLost, "a lie\x1b[2J\xff", {-1, 4, INT_MAX});
  const Error parsed = parseFailure(serializeFailure(error, 1), 1, 4);
  EXPECT_EQ(parsed.ranks(), std::vector<int>{1});
  EXPECT_NE(std::string(parsed.what()).find("a lie?[2J?"), std::string::npos) << parsed.what();
}

TEST_F(Pair, AFailureOfNoRankLeavesTheFirstFailureAsItIs) {
  Board& board = *board_;
  EXPECT_TRUE(board.fail(Error(ErrorKind::Timeout, "the first", {1})));
  for (const int rank : {-1, 2, INT_MIN, INT_MAX}) {
    EXPECT_FALSE(board.fail(Error(ErrorKind::PeerLost, "another", {rank}))) << rank;
  }
  try {
    board.throwFailure();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "the first");
  }
}

TEST(Failures, AnyBytesAreParsedToSomeError) {
  std::string text = serializeFailure(
      Error(ErrorKind::PeerLost, std::string(20'000, 'x'), std::vector<int>(1000, 1)), 0);
  EXPECT_LE(text.size(), kFailureBytes);
  EXPECT_EQ(parseFailure(text, 0, 4).kind(), ErrorKind::PeerLost);
  for (size_t length = 0; length < text.size(); length += 97) {
    EXPECT_EQ(parseFailure(text.substr(0, length), 2, 4).kind(), ErrorKind::Aborted) << length;
  }
  for (size_t i = 0; i < 300; ++i) {
    std::string spoiled = text;
    spoiled[i] = static_cast<char>(spoiled[i] ^ 0xff);
    parseFailure(spoiled, 2, 4);
  }
}

}  // namespace
}  // namespace ctran::testing
