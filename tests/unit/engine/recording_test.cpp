#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "ctran/trace/operation_trace.h"
#include "ctran/trace/overlapping_trace.h"
#include "ctran/trace/reader.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

struct Memory {
  explicit Memory(int ranks, size_t before = 8192)
      : bytes(before + Recording::bytesFor(ranks)),
        fd(createSharedMemory("test", bytes)),
        mapping(SharedMapping::map(fd, bytes)) {}
  size_t bytes;
  UniqueFd fd;
  std::shared_ptr<SharedMapping> mapping;
};

const RankRecording::Operation& only(const GroupRecording& group, size_t rank) {
  EXPECT_EQ(group.ranks.at(rank).operations.size(), 1U);
  return group.ranks.at(rank).operations.at(0);
}

TEST(Recording, CountsWhatGoesToOthers) {
  Memory memory(1);
  Recording one(memory.mapping, 1, 0, {0, 1000, "world", "here", 1, 5});
  for (int peer = 1; peer <= static_cast<int>(Recording::kLinks); ++peer) {
    RecordedLink* link = one.link(peer);
    ASSERT_NE(link, nullptr);
    EXPECT_EQ(one.link(peer), link);
    link->sent = 10 * peer;
  }
  EXPECT_EQ(one.link(999), nullptr) << "there is no room for more";
  one.link(7)->arrived = 600;
  one.link(7)->busyNanos = 5;
  one.link(9)->transport = 1;
  one.link(10)->transport = 2;
  one.link(10)->read = 5;
  one.link(10)->copied = 7;
  one.link(10)->inMessages = 1;
  one.readOfEach() = 100;
  one.link(12)->transport = 77;  // there is no such transport
  one.link(11)->peer = 12345;    // nobody is called that
  const auto group = readRecording(memory.fd.get());
  const auto& links = group->ranks.at(0).links;
  ASSERT_EQ(links.size(), Recording::kLinks - 1);
  EXPECT_EQ(links[6].peer, 7);
  EXPECT_EQ(links[6].sent, 70U);
  EXPECT_EQ(links[6].arrived, 600U);
  EXPECT_EQ(links[6].busy, 5);
  using Transport = RecordedLink::Transport;
  EXPECT_EQ(links[6].transport, Transport::Tcp);
  EXPECT_EQ(links[6].received, 0U) << "what is read of each neighbour concerns neighbours";
  EXPECT_EQ(links[8].transport, Transport::Rdma);
  EXPECT_EQ(links[9].transport, Transport::SharedMemory);
  EXPECT_EQ(links[9].received, 113U);
  EXPECT_EQ(links[9].copied, 7U);
  EXPECT_LE(links[10].transport, Transport::SharedMemory);
}

TEST(Recording, CountsWhatItDoesNotRecordWhileItIsOff) {
  Memory memory(1);
  Recording one(memory.mapping, 1, 0, {0, 1, "world", "here", 1, 5});
  OperationTrace trace;
  for (const bool on : {true, false, true}) {
    one.turn(on);
    trace.begin(&one, false, {0, 0, 1, 1, {}}, 1, 0, 0);
    trace.waits(0);
    trace.moved();
    trace.ended();
    EXPECT_EQ(readRecording(memory.fd.get())->ranks.at(0).isOff, !on);
  }
  const auto group = readRecording(memory.fd.get());
  const RankRecording& rank = group->ranks.at(0);
  EXPECT_EQ(rank.collectives, 3U);
  ASSERT_EQ(rank.operations.size(), 2U);
  EXPECT_EQ(rank.operations[1].position, 2U);
}

TEST(Recording, HandsOverSettingsAndAnswers) {
  Memory memory(3);
  Recording zero(memory.mapping, 3, 0, {4, 8, "world", "here", 1, 5});
  Recording two(memory.mapping, 3, 2, {6, 8, "world", "here", 1, 5});  // 1 has not come yet
  EXPECT_FALSE(zero.asked());
  const uint64_t first = askSetting(memory.fd.get(), "NAME", "a value");
  const auto asked = zero.asked();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->number, first);
  EXPECT_EQ(asked->name, "NAME");
  EXPECT_EQ(asked->value, "a value");
  zero.answer(asked->number, "");
  EXPECT_FALSE(zero.asked());
  auto answers = readAnswers(memory.fd.get(), first);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].rank, 4);
  EXPECT_TRUE(answers[0].hasAnswered);
  EXPECT_FALSE(answers[1].hasAnswered);

  const uint64_t second = askSetting(memory.fd.get(), "NAME", "another");
  two.answer(two.asked()->number, std::string(2000, 'x'));
  zero.left();
  answers = readAnswers(memory.fd.get(), second);
  ASSERT_EQ(answers.size(), 1U) << "nobody waits for one that has left";
  EXPECT_EQ(answers[0].answer, std::string(511, 'x'));
  EXPECT_THROW(askSetting(memory.fd.get(), std::string(64, 'n'), "v"), Error);
  EXPECT_THROW(askSetting(memory.fd.get(), "n", std::string(256, 'v')), Error);
  EXPECT_FALSE(two.asked()) << "what is refused asks nothing";
}

TEST(Recording, TrustsNoTextThatSomebodyAsks) {
  Memory memory(1);
  Recording one(memory.mapping, 1, 0, {0, 1, "world", "here", 1, 5});
  const auto part = recordingParts(memory.fd.get()).at(0);
  std::vector<char> garbage(sizeof(RecordedSetting), '\x1b');
  std::memset(garbage.data() + 8, 0, 8);  // not answered
  ASSERT_EQ(::pwrite(memory.fd.get(), garbage.data(), garbage.size(),
                     static_cast<off_t>(part.offset + RecordedSetting::kOffset)),
            static_cast<ssize_t>(garbage.size()));
  const auto asked = one.asked();
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->name.find('\x1b'), std::string::npos);
  EXPECT_LE(asked->name.size(), 4 * 64U);
  EXPECT_LE(asked->value.size(), 4 * 256U);
}

TEST(Recording, IsReadWhileTheOperationRunsAndAfterIt) {
  Memory memory(2);
  Recording zero(memory.mapping, 2, 0, {3, 8, "world", "here", 77, 5});
  Recording one(memory.mapping, 2, 1, {4, 8, "world", "here", 77, 5});
  OperationTrace trace;
  trace.begin(&one, false, {0, 0, 0x1234, 100, {}}, 400, 9, 0);
  trace.chose(one.choice("ring", "somebody wants it"));
  trace.waits(3);

  auto group = readRecording(memory.fd.get());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->group, 77U);
  ASSERT_EQ(group->ranks.size(), 2U);
  EXPECT_EQ(group->ranks[0].rank, 3);
  EXPECT_TRUE(group->ranks[0].operations.empty());
  auto op = only(*group, 1);
  EXPECT_EQ(op.what, 0x1234U);
  EXPECT_EQ(op.count, 100U);
  EXPECT_EQ(op.bytes, 400U);
  EXPECT_EQ(op.tag, 0U) << "it is none of a message";
  EXPECT_EQ(op.received, 9U);
  EXPECT_EQ(op.algorithm, "ring");
  EXPECT_EQ(op.why, "somebody wants it");
  EXPECT_EQ(op.ended, 0);
  EXPECT_TRUE(op.waits);
  EXPECT_EQ(op.waitsFor, 3);
  const int64_t now = nowNanos();
  EXPECT_LE(op.started, now);
  EXPECT_GT(op.started, now - 60'000'000'000);

  trace.moved();
  trace.waits(5);
  trace.ended();
  one.left();
  group = readRecording(memory.fd.get());
  op = only(*group, 1);
  EXPECT_FALSE(op.waits);
  EXPECT_GE(op.ended, op.first);
  EXPECT_GE(op.first, op.started);
  EXPECT_GE(op.waited, op.longestWait);
  EXPECT_EQ(op.failedWith, -1);
  EXPECT_TRUE(group->ranks[1].hasLeft);
  EXPECT_FALSE(group->ranks[0].hasLeft);
}

TEST(Recording, TakesABriefOperationForOneWait) {
  Memory memory(1);
  Recording recording(memory.mapping, 1, 0, {0, 9, "world", "here", 0, 5});
  OperationTrace trace;
  trace.begin(&recording, false, {0, 0, 0, 1, {}}, 8, 0, 0);
  trace.waits(7);
  trace.moved();
  trace.waits(7);
  trace.ended();
  const auto group = readRecording(memory.fd.get());
  const auto& op = only(*group, 0);
  EXPECT_NEAR(double(op.waited), double(op.ended - op.started), 2);
  EXPECT_EQ(op.longestWait, op.waited);
  EXPECT_EQ(op.longestFor, 7);
  EXPECT_EQ(op.first, op.ended);
  EXPECT_FALSE(op.waits);
}

TEST(Recording, OfOperationsThatOverlap) {
  Memory memory(1);
  Recording recording(memory.mapping, 1, 0, {0, 2, "world", "here", 0, 5});
  OverlappingTrace trace(recording);
  const auto first = trace.begin(false, {0, 0, 0, 1, {}}, 10, 0, 0);
  const auto second = trace.begin(false, {0, 0, 0, 2, {}}, 20, 0, recording.choice("nccl", "so"));
  const auto message = trace.begin(true, {0, 0, 0, 3, {}}, 30, 4, 0);
  trace.ended(second);
  trace.failed(message, static_cast<int>(ErrorKind::PeerLost));
  auto group = readRecording(memory.fd.get());
  const auto& operations = group->ranks.at(0).operations;
  ASSERT_EQ(operations.size(), 3U);
  EXPECT_EQ(operations[0].ended, 0);
  EXPECT_GE(operations[1].ended, operations[1].started);
  EXPECT_EQ(operations[1].algorithm, "nccl");
  EXPECT_EQ(operations[2].failedWith, static_cast<int>(ErrorKind::PeerLost));
  EXPECT_EQ(operations[2].tag, 4U);

  recording.turn(false);
  EXPECT_FALSE(trace.begin(false, {0, 0, 0, 1, {}}, 10, 0, 0).isRecorded);
  recording.turn(true);
  for (uint64_t i = 0; i < Recording::kCollectives; ++i) trace.begin(false, {}, 0, 0, 0);
  trace.ended(first);  // its record has gone
  group = readRecording(memory.fd.get());
  for (const auto& op : group->ranks.at(0).operations) {
    if (!op.isMessage) {
      EXPECT_EQ(op.ended, 0);
    }
  }
}

TEST(Recording, GivesTheNumberOfACallThatIsRefusedToTheNextOne) {
  Memory memory(1);
  Recording recording(memory.mapping, 1, 0, {0, 2, "world", "here", 0, 5});
  OverlappingTrace trace(recording);
  const auto running = trace.begin(false, {0, 0, 0, 1, {}}, 10, 0, 0);
  const auto refused = trace.begin(false, {0, 0, 0, 2, {}}, 20, 0, 0);
  const auto message = trace.begin(true, {0, 0, 0, 3, {}}, 30, 4, 0);
  ASSERT_TRUE(running.isRecorded && refused.isRecorded && message.isRecorded);
  trace.withdraw(refused);
  auto group = readRecording(memory.fd.get());
  ASSERT_EQ(group->ranks.at(0).operations.size(), 2U);
  const auto next = trace.begin(false, {0, 0, 0, 4, {}}, 40, 0, 0);
  EXPECT_EQ(next.position, 1U);
  trace.ended(next);
  group = readRecording(memory.fd.get());
  const auto& rank = group->ranks.at(0);
  EXPECT_EQ(rank.collectives, 2U);
  EXPECT_EQ(rank.messages, 1U);
  ASSERT_EQ(rank.operations.size(), 3U);
  EXPECT_EQ(rank.operations[0].ended, 0);
  EXPECT_EQ(rank.operations[1].count, 4U);
  EXPECT_GT(rank.operations[1].ended, 0);
}

TEST(Recording, CountsAlikeWhatIsRefusedWhileItIsOff) {
  Memory memory(1);
  Recording recording(memory.mapping, 1, 0, {0, 2, "world", "here", 0, 5});
  OverlappingTrace trace(recording);
  recording.turn(false);
  trace.begin(false, {0, 0, 0, 1, {}}, 10, 0, 0);
  trace.withdraw(trace.begin(false, {0, 0, 0, 2, {}}, 20, 0, 0));
  recording.turn(true);
  EXPECT_EQ(trace.begin(false, {0, 0, 0, 3, {}}, 30, 0, 0).position, 1U);
}

TEST(Recording, TakesTimesThatTheDeviceTells) {
  Memory memory(1);
  Recording recording(memory.mapping, 1, 0, {0, 2, "world", "here", 0, 5});
  OverlappingTrace trace(recording);
  const auto early = trace.begin(false, {0, 0, 0, 1, {}}, 10, 0, 0);
  trace.ended(early, 1, 2);  // before the call, as clocks need not quite agree
  const auto known = trace.begin(false, {0, 0, 0, 2, {}}, 10, 0, 0);
  const uint64_t now = ticks();
  trace.ended(known, now + 1'000'000, now + 3'000'000);
  const auto group = readRecording(memory.fd.get());
  const auto& operations = group->ranks.at(0).operations;
  ASSERT_EQ(operations.size(), 2U);
  EXPECT_EQ(operations[0].started, operations[0].called);
  EXPECT_EQ(operations[0].ended, operations[0].called);
  EXPECT_GT(operations[1].started, operations[1].called);
  EXPECT_GT(operations[1].ended, operations[1].started);
}

TEST(Recording, KeepsTheLastOnes) {
  Memory memory(1);
  Recording recording(memory.mapping, 1, 0, {0, 1, "world", "here", 0, 5});
  OperationTrace trace;
  const uint64_t calls = Recording::kCollectives + 10;
  for (uint64_t i = 0; i < calls; ++i) {
    trace.begin(&recording, false, {0, 0, 0, i, {}}, 0, 0, 0);
    trace.ended();
  }
  const auto group = readRecording(memory.fd.get());
  const auto& operations = group->ranks.at(0).operations;
  ASSERT_EQ(operations.size(), Recording::kCollectives);
  for (size_t i = 0; i < operations.size(); ++i) EXPECT_EQ(operations[i].count, i + 10);
  EXPECT_EQ(group->ranks[0].collectives, calls);
}

TEST(Recording, TellsAFailureAndWhomTheOperationWaitedFor) {
  Memory memory(1);
  Recording recording(memory.mapping, 1, 0, {0, 2, "world", "here", 0, 5});
  OperationTrace trace;
  trace.begin(&recording, true, {0, 0, 0, 1, {}}, 0, 0, 0);
  trace.waits(1);
  recording.failed(Error(ErrorKind::Timeout, "first", {1}));
  recording.failed(Error(ErrorKind::System, "second", {0}));
  trace.failed(static_cast<int>(ErrorKind::Timeout));
  const auto group = readRecording(memory.fd.get());
  EXPECT_EQ(group->ranks.at(0).failure, "first");
  EXPECT_EQ(group->ranks[0].blames, std::vector<int>{1});
  EXPECT_TRUE(only(*group, 0).isMessage);
  EXPECT_EQ(only(*group, 0).failedWith, static_cast<int>(ErrorKind::Timeout));
  EXPECT_EQ(only(*group, 0).waitsFor, 1);
}

TEST(Recording, ReadersBelieveNothing) {
  // Whatever is in it: it is read, or is no recording. Sanitizers look for the rest.
  Memory memory(2);
  uint64_t state = 42;
  const auto random = [&state] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return state >> 16;
  };
  auto* words = reinterpret_cast<uint64_t*>(memory.mapping->data());
  const size_t count = memory.bytes / 8;
  const size_t footer = (memory.bytes - Recording::kPage) / 8;
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < count; ++i) words[i] = round % 2 == 0 ? random() : random() % 8;
    words[footer] = RecordingFooter::kMagic;
    words[footer + 1] = round < 10 ? 2 : random();
    EXPECT_NO_THROW(readRecording(memory.fd.get())) << round;
  }
  std::memset(memory.mapping->data(), 0, memory.bytes);
  EXPECT_FALSE(readRecording(memory.fd.get()));
}

TEST(Recording, OfCollectivesHaveTheSameNumbersOnAllRanks) {
  if (kThreadSanitizer) GTEST_SKIP() << "a reader copies what others write, as it must";
  runRanks(3, [](Communicator& communicator) {
    Collective c;
    c.kind = CollectiveKind::AllReduce;
    c.type = DataType::Int32;
    std::vector<int32_t> data(50, 1);
    c.count = data.size();
    c.input = c.output = reinterpret_cast<std::byte*>(data.data());
    for (int i = 0; i < 5; ++i) {
      if (i % 2 == 0) {
        communicator.run(c);
      } else {
        communicator.post(c)->wait(nullptr);
      }
    }
    const auto group = readRecording(communicator.recordedAt());
    ASSERT_TRUE(group);
    const auto& own = group->ranks.at(communicator.rank());
    EXPECT_EQ(own.collectives, 6U);  // one to create it
    for (const auto& op : own.operations) {
      if (op.position == 0) continue;
      EXPECT_EQ(op.bytes, 200U);
      EXPECT_NE(op.ended, 0);
      EXPECT_NE(op.algorithm, "");
      EXPECT_NE(op.why, "");
      EXPECT_LE(op.called, op.started);
    }
    EXPECT_EQ(own.queued, 0U);
  });
}

/// Bytes that this rank has got from another one of its host so far.
uint64_t receivedFrom(Communicator& communicator, int peer) {
  const auto group = readRecording(communicator.recordedAt());
  for (const auto& rank : group->ranks) {
    if (rank.rank != communicator.rank()) continue;
    for (const auto& link : rank.links) {
      if (link.peer == peer && link.transport == RecordedLink::Transport::SharedMemory) {
        return link.received;
      }
    }
  }
  return 0;
}

/// On one host, and on two with two ranks each.
class RecordingOfTraffic : public ::testing::TestWithParam<int> {};

TEST_P(RecordingOfTraffic, CountsWhatARankReadsOfItsNeighbour) {
  if (kThreadSanitizer) GTEST_SKIP() << "a reader copies what others write, as it must";
  runRanks(
      4,
      [](Communicator& communicator) {
        const int neighbour = communicator.rank() ^ 1;
        std::vector<int32_t> input(4 * 100'000, communicator.rank()), output(4 * 100'000, -1);
        for (const size_t count : {size_t{3}, size_t{2000}, size_t{100'000}}) {
          for (const CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::AllToAll}) {
            Collective c;
            c.kind = kind;
            c.type = DataType::Int32;
            c.count = count;
            c.input = reinterpret_cast<const std::byte*>(input.data());
            c.output = reinterpret_cast<std::byte*>(output.data());
            const uint64_t before = receivedFrom(communicator, neighbour);
            communicator.run(c);
            const uint64_t got = receivedFrom(communicator, neighbour) - before;
            if (communicator.spansHosts()) {  // and what came from the other host to that one
              EXPECT_GE(got, 4 * count) << nameOf(kind);
            } else {
              EXPECT_EQ(got, 4 * count) << nameOf(kind);
            }
          }
        }
        const uint64_t before = receivedFrom(communicator, neighbour);
        Collective send;
        send.kind = CollectiveKind::Send;
        send.type = DataType::Int32;
        send.count = 70'000;
        send.root = neighbour;
        send.input = reinterpret_cast<const std::byte*>(input.data());
        const auto sent = communicator.post(send);
        Collective recv = send;
        recv.kind = CollectiveKind::Recv;
        recv.output = reinterpret_cast<std::byte*>(output.data());
        communicator.run(recv);
        EXPECT_EQ(receivedFrom(communicator, neighbour) - before, 4 * recv.count);
        sent->wait(nullptr);
      },
      GetParam());
}
INSTANTIATE_TEST_SUITE_P(Hosts, RecordingOfTraffic, ::testing::Values(0, 2));

}  // namespace
}  // namespace ctran::testing
