// Many operations, without anything between them that would keep the ranks in step.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <deque>
#include <random>
#include <thread>

#include "ctran/bootstrap/local_store.h"
#include "tests/unit/support/cases.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Bytes = std::vector<std::byte>;

/// Call number `index` of a random sequence.
Case randomCase(uint64_t seed, int index, int size) {
  const auto random = [&](int field) { return mix(mix(seed + index) + field); };
  Case c;
  c.kind = kKinds[random(0) % std::size(kKinds)];
  c.type = random(1) % 2 == 0 ? DataType::Int32 : DataType::BFloat16;
  c.root = isRooted(c.kind) ? static_cast<int>(random(2) % size) : 0;
  // Mostly small, so that many are in flight at once; some large.
  c.count = random(3) % 8 == 0 ? random(4) % 30'000 : random(4) % 600;
  c.seed = random(5);
  c.inPlace = random(6) % 2 == 0;
  return c;
}

/// A call in flight, and what has to come out of it.
struct Pending {
  Case description;
  std::unique_ptr<Buffers> buffers;
  std::vector<Bytes> expected;
  std::shared_ptr<Work> work;

  void finish() {
    work->wait();
    EXPECT_EQ(buffers->check(expected), "") << description.describe();
  }
};

void runSequence(Communicator& communicator, uint64_t seed, int length) {
  const int rank = communicator.rank(), size = communicator.size();
  std::mt19937_64 own(seed * 1000 + rank);  // when this rank waits is its own affair
  std::vector<Pending> pending;
  for (int i = 0; i < length; ++i) {
    Pending call;
    call.description = randomCase(seed, i, size);
    Inputs inputs;
    for (int r = 0; r < size; ++r) inputs.push_back(inputsOf(call.description, r, size));
    call.buffers = std::make_unique<Buffers>(call.description, rank, size, inputs[rank]);
    call.expected = expectedOf(call.description, rank, size, inputs);
    if (own() % 3 == 0) {
      communicator.run(call.buffers->collective());
      EXPECT_EQ(call.buffers->check(call.expected), "") << call.description.describe();
    } else {
      call.work = communicator.post(call.buffers->collective());
      pending.push_back(std::move(call));
    }
    while (!pending.empty() && (own() % 4 == 0 || pending.size() > 30)) {
      const size_t which = own() % pending.size();
      pending[which].finish();
      pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  std::shuffle(pending.begin(), pending.end(), own);
  for (Pending& call : pending) call.finish();
}

constexpr int kLength = kThreadSanitizer ? 150 : 600;

class Sequence : public ::testing::TestWithParam<int> {};

TEST_P(Sequence, OfRandomCallsSomeWaitedForLaterAndOutOfOrder) {
  runRanks(GetParam(), [](Communicator& communicator) { runSequence(communicator, 11, kLength); });
}

TEST_P(Sequence, OfRandomCallsInSeveralCommunicatorsAtOnce) {
  const int size = GetParam();
  constexpr int kCommunicators = 3;
  const auto store = std::make_shared<MemoryStore>();
  runThreads(size * kCommunicators, [&](int thread) {
    const int which = thread / size;
    const auto communicator = Communicator::create(
        optionsFor(thread % size, size, store, "number " + std::to_string(which)));
    runSequence(*communicator, 100 + which, kLength / 4);
    communicator->finalize();
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Sequence, ::testing::Values(1, 2, 4, 7),
                         [](const auto& size) { return "Of" + std::to_string(size.param); });

TEST(SequenceOfBroadcasts, RootRunsAheadOfReadersThatLag) {
  constexpr int kCalls = 1000;
  runRanks(3, [](Communicator& communicator) {
    std::vector<uint64_t> data(kCalls);
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < kCalls; ++i) {
      Collective c;
      c.kind = CollectiveKind::Broadcast;
      c.type = DataType::UInt64;
      c.count = 1;
      c.output = reinterpret_cast<std::byte*>(&data[i]);
      if (communicator.rank() == 0) data[i] = mix(i);
      if (communicator.rank() == 0) {
        works.push_back(communicator.post(c));
      } else {
        for (int lag = 0; lag < communicator.rank() * 10; ++lag) std::this_thread::yield();
        communicator.run(c);
      }
    }
    for (const auto& work : works) work->wait();
    for (int i = 0; i < kCalls; ++i) ASSERT_EQ(data[i], mix(i)) << i;
  });
}

TEST(SequenceOfReductions, ThousandsInFlightWaitedForFromTheLastToTheFirst) {
  constexpr int kCalls = kThreadSanitizer ? 500 : 3000;
  runRanks(4, [](Communicator& communicator) {
    std::vector<int64_t> in(kCalls), out(kCalls, -1);
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < kCalls; ++i) {
      in[i] = i * 10 + communicator.rank();
      Collective c;
      c.kind = CollectiveKind::AllReduce;
      c.type = DataType::Int64;
      c.count = 1;
      c.input = reinterpret_cast<const std::byte*>(&in[i]);
      c.output = reinterpret_cast<std::byte*>(&out[i]);
      works.push_back(communicator.post(c));
    }
    std::reverse(works.begin(), works.end());
    for (const auto& work : works) work->wait();
    for (int i = 0; i < kCalls; ++i) ASSERT_EQ(out[i], i * 40 + 6);
  });
}

// --- Messages ---------------------------------------------------------------------------------

Collective message(CollectiveKind kind, int peer, Bytes& data) {
  Collective c;
  c.kind = kind;
  c.type = DataType::Opaque1;
  c.root = peer;
  c.count = data.size();
  (kind == CollectiveKind::Send ? const_cast<std::byte*&>(c.input) : c.output) = data.data();
  return c;
}

Bytes content(int from, int to, size_t index, size_t size) {
  Bytes data(size);
  const uint64_t seed = mix(from * 64 + to) + index;
  for (size_t i = 0; i < size; ++i) data[i] = std::byte(mix(seed + i / 8) >> i % 8 * 8);
  return data;
}

/// Around the header, a quarter of the ring and the ring; the largest flow through it.
std::vector<size_t> messageSizes() {
  std::vector<size_t> sizes{0, 1, 63, 64, 65, 1000};
  for (const size_t around : {size_t{64} << 10, size_t{256} << 10, size_t{1} << 20}) {
    for (const size_t distance : {size_t{65}, size_t{64}, size_t{63}, size_t{0}}) {
      sizes.push_back(around - distance);
      sizes.push_back(around + distance);
    }
  }
  sizes.push_back((size_t{3} << 20) + 7);
  return sizes;
}

class Messages : public ::testing::TestWithParam<int> {};

TEST_P(Messages, OfAllSizesBetweenAllPairsInBothDirections) {
  const auto sizes = messageSizes();
  runRanks(GetParam(), [&](Communicator& communicator) {
    const int rank = communicator.rank(), size = communicator.size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::deque<Bytes> sent, received;
      std::vector<std::shared_ptr<Work>> works;
      for (int peer = 0; peer < size; ++peer) {  // itself included
        received.emplace_back(sizes[i], std::byte{0xa5});
        sent.push_back(content(rank, peer, i, sizes[i]));
        works.push_back(communicator.post(message(CollectiveKind::Recv, peer, received.back())));
        works.push_back(communicator.post(message(CollectiveKind::Send, peer, sent.back())));
      }
      for (const auto& work : works) work->wait();
      for (int peer = 0; peer < size; ++peer) {
        ASSERT_TRUE(received[peer] == content(peer, rank, i, sizes[i])) << "size " << sizes[i];
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Messages, ::testing::Values(1, 2, 3),
                         [](const auto& size) { return "Of" + std::to_string(size.param); });

TEST(MessagesInOrder, BlockingCallsBackAndForth) {
  const auto sizes = messageSizes();
  runRanks(2, [&](Communicator& communicator) {
    const int rank = communicator.rank(), peer = 1 - rank;
    for (size_t i = 0; i < sizes.size(); ++i) {
      for (const int sender : {0, 1}) {
        Bytes data = content(sender, 1 - sender, i, sizes[i]);
        if (rank == sender) {
          communicator.run(message(CollectiveKind::Send, peer, data));
        } else {
          Bytes received(sizes[i], std::byte{0xa5});
          communicator.run(message(CollectiveKind::Recv, peer, received));
          ASSERT_TRUE(received == data);
        }
      }
    }
  });
}

TEST(MessagesInOrder, DoNotWaitForCollectivesNorCollectivesForThem) {
  runRanks(2, [](Communicator& communicator) {
    const int rank = communicator.rank();
    Bytes data = content(0, 1, 0, 100);
    Collective barrier;
    barrier.kind = CollectiveKind::Barrier;
    if (rank == 0) {
      Bytes answer(100);
      const auto received = communicator.post(message(CollectiveKind::Recv, 1, answer));
      communicator.run(barrier);  // although the receive is stuck
      const auto entered = communicator.post(barrier);
      communicator.run(message(CollectiveKind::Send, 1, data));  // although the barrier is
      received->wait();
      entered->wait();
      EXPECT_EQ(answer, data);
    } else {
      Bytes got(100);
      communicator.run(barrier);
      communicator.run(message(CollectiveKind::Recv, 0, got));
      communicator.run(message(CollectiveKind::Send, 0, got));
      communicator.run(barrier);
    }
  });
}

TEST(MessagesInOrder, ManySendersRunAheadOfOneReceiver) {
  constexpr int kMessages = kThreadSanitizer ? 200 : 1000;
  runRanks(4, [](Communicator& communicator) {
    const int rank = communicator.rank();
    if (rank == 0) {
      for (int i = 0; i < kMessages; ++i) {
        for (int peer = 1; peer < 4; ++peer) {
          Bytes got(4000, std::byte{0xa5});
          communicator.run(message(CollectiveKind::Recv, peer, got));
          ASSERT_TRUE(got == content(peer, 0, i, 4000));
        }
      }
    } else {
      for (int i = 0; i < kMessages; ++i) {
        Bytes data = content(rank, 0, i, 4000);
        communicator.run(message(CollectiveKind::Send, 0, data));
      }
    }
  });
}

/// Less than a second: a minute, if each that begins or ends looks at all the others.
TEST(MessagesInOrder, VeryManyAreInFlight) {
  constexpr int kMessages = kThreadSanitizer ? 2000 : 100'000;
  std::barrier together(2);
  runRanks(2, [&](Communicator& communicator) {
    Bytes data(8, std::byte(1));
    if (communicator.rank() == 1) {
      together.arrive_and_wait();
      for (int i = 0; i < kMessages; ++i) communicator.run(message(CollectiveKind::Send, 0, data));
      return;
    }
    data.assign(data.size(), std::byte(0));
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < kMessages; ++i) {
      works.push_back(communicator.post(message(CollectiveKind::Recv, 1, data)));
    }
    together.arrive_and_wait();
    for (const auto& work : works) work->wait();
    EXPECT_EQ(data, Bytes(data.size(), std::byte(1)));
  });
}

}  // namespace
}  // namespace ctran::testing
