// Communicators whose ranks count as on several hosts: what breaks, and what is said of it. Ranks
// are processes where one has to die, threads otherwise.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cstring>
#include <filesystem>

#include "ctran/base/clock.h"
#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

CommunicatorOptions optionsOn(const std::string& host, int rank, int size,
                              std::shared_ptr<Store> store) {
  auto options = optionsFor(rank, size, std::move(store));
  options.hints["ctran::host"] = host;
  return options;
}

CommunicatorOptions hostPerRank(int rank, int size, std::shared_ptr<Store> store) {
  return optionsOn("host" + std::to_string(rank), rank, size, std::move(store));
}

Collective message(Kind kind, int peer, void* data, size_t bytes) {
  Collective c;
  c.kind = kind;
  c.type = DataType::UInt8;
  c.root = peer;
  c.count = bytes;
  c.input = c.output = static_cast<std::byte*>(data);
  return c;
}

Collective collective(Kind kind, std::vector<std::byte>& data, size_t count, int size) {
  Collective c;
  c.kind = kind;
  c.type = DataType::UInt8;
  c.count = count;
  data.resize(2 * count * size + 1);
  c.input = data.data();
  c.output = data.data() + count * size;
  return c;
}

TEST(Hosts, ConnectionsAreMadeWhenFirstNeeded) {
  const auto store = std::make_shared<MemoryStore>();
  std::barrier together(8);
  runThreads(8, [&](int rank) {
    const auto communicator = Communicator::create(hostPerRank(rank, 8, store));
    auto& transport = *communicator->transport();
    // The barrier of its creation: three steps, hence so many ranks before and after.
    EXPECT_LE(transport.connections(), 6);
    together.arrive_and_wait();
    expectWorks(*communicator);
    EXPECT_EQ(transport.connections(), 7);
    together.arrive_and_wait();  // who leaves hangs up
    communicator->finalize();
  });
}

/// What ctest says to suites that it runs a second time, over RDMA (cmake/UnitTests.cmake).
TEST(HostsPath, IsRdmaWhereALibraryIsNamed) {
  if (::getenv("CTRAN_VERBS_LIBRARY") == nullptr) GTEST_SKIP() << "CTRAN_VERBS_LIBRARY is not set";
  const auto store = std::make_shared<MemoryStore>();
  std::barrier together(3);
  std::array<std::atomic<bool>, 3> isRdma{};
  runThreads(3, [&](int rank) {
    const auto communicator = Communicator::create(hostPerRank(rank, 3, store));
    bool areAll = false;
    for (int round = 0; round < 1000 && !areAll; ++round) {
      expectWorks(*communicator);
      isRdma[rank] = true;
      for (int peer = 0; peer < 3; ++peer) {
        const std::string path = communicator->transport()->pathTo(peer);
        if (peer != rank && !path.starts_with("RDMA (standin_")) isRdma[rank] = false;
      }
      together.arrive_and_wait();
      areAll = isRdma[0] && isRdma[1] && isRdma[2];
      together.arrive_and_wait();
    }
    EXPECT_TRUE(areAll);
    communicator->finalize();
  });
}

TEST(Hosts, SplitNeedsNoStoreAndFindsOutAboutSharedHosts) {
  runRanks(
      6,
      [](Communicator& communicator) {
        const int rank = communicator.rank();
        EXPECT_TRUE(communicator.spansHosts());
        const int first = rank / 2 * 2;
        const auto local = communicator.split(std::vector{first, first + 1}, "local");
        EXPECT_FALSE(local->spansHosts());
        expectWorks(*local);
        const auto across =
            communicator.split(std::vector{rank % 2, rank % 2 + 2, rank % 2 + 4}, "across");
        EXPECT_TRUE(across->spansHosts());
        expectWorks(*across);
        expectWorks(communicator);
      },
      2);
}

TEST(Hosts, OneNameCanBeUsedAgain) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(3, [&](int rank) {
    std::vector<std::shared_ptr<Communicator>> alive;
    for (int i = 0; i < 4; ++i) {
      const auto brief = Communicator::create(hostPerRank(rank, 3, store));
      expectWorks(*brief);
      brief->finalize();
      alive.push_back(Communicator::create(hostPerRank(rank, 3, store)));
    }
    for (const auto& communicator : alive) expectWorks(*communicator);
  });
}

TEST(Hosts, MissingRankIsNamed) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(2, [&](int rank) {
    auto options = hostPerRank(rank, 3, store);
    options.timeout = kArrival;
    const Error error = errorOf([&] { Communicator::create(options); });
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
  });
}

TEST(Hosts, MessagesOfAllSizesArriveInOrderAndDoNotWaitForCollectives) {
  runRanks(
      3,
      [](Communicator& communicator) {
        const int rank = communicator.rank(), next = (rank + 1) % 3, previous = (rank + 2) % 3;
        const std::vector<size_t> sizes{0, 1, 100, 65'536, 65'537, 3'000'000, 5, 1'000'000};
        std::vector<std::vector<std::byte>> sent, got;
        std::vector<std::shared_ptr<Work>> works;
        for (const size_t bytes : sizes) {
          sent.emplace_back(bytes + 1, std::byte(rank * 16 + bytes % 13));
          got.emplace_back(bytes + 1, std::byte{0xff});
        }
        std::shared_ptr<Work> barrier;
        if (rank != 0) barrier = communicator.post({});  // rank 0 comes later
        for (size_t i = 0; i < sizes.size(); ++i) {
          works.push_back(communicator.post(message(Kind::Send, next, sent[i].data(), sizes[i])));
          works.push_back(
              communicator.post(message(Kind::Recv, previous, got[i].data(), sizes[i])));
        }
        for (const auto& work : works) work->wait();
        for (size_t i = 0; i < sizes.size(); ++i) {
          EXPECT_EQ(std::count(got[i].begin(), got[i].end() - 1,
                               std::byte(previous * 16 + sizes[i] % 13)),
                    static_cast<std::ptrdiff_t>(sizes[i]));
          EXPECT_EQ(got[i].back(), std::byte{0xff});
        }
        if (rank == 0) barrier = communicator.post({});
        barrier->wait();
      },
      1);
}

TEST(Hosts, MessagesToOneselfMeet) {
  runRanks(
      2,
      [](Communicator& communicator) {
        for (const size_t bytes : {size_t{0}, size_t{10}, size_t{2'000'000}}) {
          std::vector<std::byte> sent(bytes + 1, std::byte{7}), got(bytes + 1);
          got.back() = std::byte{7};
          const int self = communicator.rank();
          const auto send = communicator.post(message(Kind::Send, self, sent.data(), bytes));
          communicator.run(message(Kind::Recv, self, got.data(), bytes));
          send->wait();
          EXPECT_EQ(got, sent);
        }
      },
      1);
}

TEST(Hosts, UnreceivedMessagesAreBoundedAndFlowWhenReceived) {
  runRanks(
      2,
      [](Communicator& communicator) {
        constexpr int kMessages = 200;
        constexpr size_t kBytes = 50'000;  // 10 MB, ten times the window
        if (communicator.rank() == 0) {
          std::vector<std::byte> data(kBytes);
          std::vector<std::shared_ptr<Work>> works;
          std::vector<std::vector<std::byte>> all(kMessages, data);
          for (int i = 0; i < kMessages; ++i) {
            std::memcpy(all[i].data(), &i, sizeof i);
            works.push_back(communicator.post(message(Kind::Send, 1, all[i].data(), kBytes)));
          }
          communicator.run({});
          for (const auto& work : works) work->wait();
        } else {
          communicator.run({});
          for (int i = 0; i < kMessages; ++i) {
            std::vector<std::byte> data(kBytes);
            communicator.run(message(Kind::Recv, 0, data.data(), kBytes));
            int got = -1;
            std::memcpy(&got, data.data(), sizeof got);
            ASSERT_EQ(got, i);
          }
        }
      },
      1);
}

TEST(Hosts, SentDataArrivesThoughTheSenderHasFinalized) {
  const auto store = std::make_shared<MemoryStore>();
  std::barrier together(2);
  runThreads(2, [&](int rank) {
    const auto communicator = Communicator::create(hostPerRank(rank, 2, store));
    std::vector<std::byte> data(60'000, std::byte(rank));
    if (rank == 0) {
      for (int i = 0; i < 10; ++i) communicator->run(message(Kind::Send, 1, data.data(), 60'000));
      communicator->finalize();
      together.arrive_and_wait();
    } else {
      together.arrive_and_wait();
      for (int i = 0; i < 10; ++i) {
        std::fill(data.begin(), data.end(), std::byte{9});
        communicator->run(message(Kind::Recv, 0, data.data(), 60'000));
        EXPECT_EQ(std::count(data.begin(), data.end(), std::byte{0}), 60'000);
      }
      const Error error =
          errorOf([&] { communicator->run(message(Kind::Recv, 0, data.data(), 60'000)); });
      EXPECT_EQ(error.kind(), ErrorKind::PeerLost);
      EXPECT_EQ(error.ranks(), std::vector<int>{0}) << error.what();
      EXPECT_NE(std::string(error.what()).find("has left"), std::string::npos) << error.what();
    }
  });
}

/// Sums of whole numbers, which are exact in any order.
template <class T>
void expectSums(Communicator& communicator, DataType type, ReduceOp op, size_t count,
                bool inPlace) {
  const int rank = communicator.rank(), size = communicator.size();
  std::vector<T> input(count + 1), output(count + 1, T(77));
  for (size_t i = 0; i < count; ++i) input[i] = T(i % 1000 + rank * (i % 7));
  if (inPlace) output = input;
  Collective c;
  c.kind = Kind::AllReduce;
  c.type = type;
  c.op = op;
  c.count = count;
  c.output = reinterpret_cast<std::byte*>(output.data());
  c.input = inPlace ? c.output : reinterpret_cast<const std::byte*>(input.data());
  output[count] = T(78);
  communicator.run(c);
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    T expected = 0;
    for (int r = 0; r < size; ++r) expected += T(i % 1000 + r * (i % 7));
    if (op.kind == ReduceKind::Avg) expected /= T(size);
    if (op.kind == ReduceKind::Max) expected = T(i % 1000 + (size - 1) * (i % 7));
    wrong += output[i] != expected;
  }
  EXPECT_EQ(wrong, 0u) << "of " << count;
  EXPECT_EQ(output[count], T(78));
}

TEST(HostsAlgorithm, IsTheOneThatTheHintNames) {
  for (const char* name : {"ring", "direct", "two_phase"}) {
    for (const int size : {2, 4, 5}) {
      const auto store = std::make_shared<MemoryStore>();
      runThreads(size, [&](int rank) {
        auto options = hostPerRank(rank, size, store);
        options.hints["ctran::algorithm"] = name;
        const auto communicator = Communicator::create(options);
        for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{1000}, size_t{60'001}}) {
          for (const bool inPlace : {false, true}) {
            expectSums<int32_t>(*communicator, DataType::Int32, {}, count, inPlace);
            expectSums<float>(*communicator, DataType::Float32, {ReduceKind::Max}, count, inPlace);
            if (size == 5) continue;
            expectSums<double>(*communicator, DataType::Float64, {ReduceKind::Avg}, count, inPlace);
          }
        }
        expectWorks(*communicator);
      });
    }
  }
}

TEST(HostsAlgorithm, SecondNamesAreAccepted) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(2, [&](int rank) {
    auto options = hostPerRank(rank, 2, store);
    for (const char* name : {"ARG", "recdbl", "BrucksFF", "rhd", "all_reduce=RHD",
                             "reduce_scatter=rhd", "broadcast=binomial_tree"}) {
      options.name = name;
      options.hints["ctran::algorithm"] = name;
      const auto communicator = Communicator::create(options);
      expectSums<int32_t>(*communicator, DataType::Int32, {}, 1000, false);
      communicator->finalize();
    }
    options.hints["ctran::algorithm"] = "all_reduce=recdbl";
    EXPECT_EQ(errorOf([&] { Communicator::create(options); }).kind(), ErrorKind::InvalidArgument);
  });
}

TEST(HostsAlgorithm, UnknownOrDifferentNamesAreErrors) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(2, [&](int rank) {
    auto options = hostPerRank(rank, 2, store);
    options.hints["ctran::algorithm"] = "guess";
    const Error error = errorOf([&] { Communicator::create(options); });
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
    EXPECT_NE(std::string(error.what()).find("two_phase"), std::string::npos) << error.what();
    options.hints["ctran::algorithm"] = "all_gather=two_phase";
    const Error other = errorOf([&] { Communicator::create(options); });
    EXPECT_EQ(other.kind(), ErrorKind::InvalidArgument);
    EXPECT_NE(std::string(other.what()).find("recursive_doubling"), std::string::npos)
        << other.what();
    options.hints["ctran::algorithm"] = "gather_all=ring";
    EXPECT_EQ(errorOf([&] { Communicator::create(options); }).kind(), ErrorKind::InvalidArgument);
  });
  runThreads(2, [&](int rank) {
    auto options = hostPerRank(rank, 2, store);
    options.hints["ctran::algorithm"] = rank == 0 ? "ring" : "direct";
    EXPECT_EQ(errorOf([&] { Communicator::create(options); }).kind(), ErrorKind::Mismatch);
  });
}

// --- What is told
// ---------------------------------------------------------------------------------

void expectAll(int size, ErrorKind kind, const std::function<void(Communicator&, int)>& call,
               const std::function<void(const Error&, int)>& check,
               std::chrono::milliseconds timeout = kGuard) {
  const auto store = std::make_shared<MemoryStore>();
  std::barrier together(size);
  runThreads(size, [&](int rank) {
    auto options = hostPerRank(rank, size, store);
    const auto communicator = Communicator::create(options);
    communicator->setTimeout(timeout);
    const Error error = errorOf([&] {
      call(*communicator, rank);
      while (true) communicator->run({});
    });
    EXPECT_EQ(error.kind(), kind) << error.what();
    check(error, rank);
    EXPECT_TRUE(communicator->isAborted());
    EXPECT_EQ(errorOf([&] { communicator->run({}); }).kind(), kind);
    together.arrive_and_wait();
  });
}

TEST(HostsMismatch, DifferentOperationsAreToldToAll) {
  for (const size_t count : {size_t{4}, size_t{1'000'000}}) {
    expectAll(
        3, ErrorKind::Mismatch,
        [&](Communicator& communicator, int rank) {
          std::vector<std::byte> data;
          communicator.run(
              collective(rank == 1 ? Kind::AllGather : Kind::AllReduce, data, count, 3));
        },
        [](const Error& error, int) {
          EXPECT_NE(std::string(error.what()).find("all_gather"), std::string::npos)
              << error.what();
          EXPECT_NE(std::string(error.what()).find("all_reduce"), std::string::npos)
              << error.what();
        });
  }
}

TEST(HostsMismatch, DifferentCountsAreToldToAll) {
  for (const auto& [usual, odd] :
       {std::pair<size_t, size_t>{4, 5}, {4, 1'000'000}, {1'000'000, 999'999}, {1'000'000, 3}}) {
    expectAll(
        3, ErrorKind::Mismatch,
        [&, usual = usual, odd = odd](Communicator& communicator, int rank) {
          std::vector<std::byte> data;
          communicator.run(collective(Kind::AllReduce, data, rank == 2 ? odd : usual, 3));
        },
        [&, usual = usual, odd = odd](const Error& error, int) {
          const std::string text = error.what();
          EXPECT_NE(text.find(std::to_string(usual) + " elements"), std::string::npos) << text;
          EXPECT_NE(text.find(std::to_string(odd) + " elements"), std::string::npos) << text;
        });
  }
}

TEST(HostsMismatch, DifferentRootsAreFoundAtTheNextCall) {
  expectAll(
      3, ErrorKind::Mismatch,
      [&](Communicator& communicator, int rank) {
        std::vector<std::byte> data;
        Collective c = collective(Kind::Broadcast, data, 4, 3);
        c.root = rank == 0 ? 0 : 1;
        communicator.run(c);
      },
      [](const Error& error, int) {
        const std::string text = error.what();
        EXPECT_NE(text.find("broadcast("), std::string::npos) << text;
        EXPECT_TRUE(text.find("root 0") != std::string::npos ||
                    text.find("root 1") != std::string::npos)
            << text;
      });
}

TEST(HostsMismatch, DifferentMessagesAreToldToBoth) {
  for (const auto& [sent, expected] :
       {std::pair<size_t, size_t>{10, 11}, {10, 100'000}, {100'000, 10}, {100'000, 200'000}}) {
    expectAll(
        2, ErrorKind::Mismatch,
        [&, sent = sent, expected = expected](Communicator& communicator, int rank) {
          std::vector<std::byte> data(200'000);
          communicator.run(rank == 0 ? message(Kind::Send, 1, data.data(), sent)
                                     : message(Kind::Recv, 0, data.data(), expected));
        },
        [](const Error& error, int) {
          const std::string text = error.what();
          EXPECT_NE(text.find("send("), std::string::npos) << text;
          EXPECT_NE(text.find("recv("), std::string::npos) << text;
        });
  }
}

TEST(HostsMismatch, CountsOfAPairInAllToAllVAreCompared) {
  expectAll(
      3, ErrorKind::Mismatch,
      [&](Communicator& communicator, int rank) {
        std::vector<std::byte> data(10'000);
        Collective c;
        c.kind = Kind::AllToAllV;
        c.type = DataType::UInt8;
        for (int r = 0; r < 3; ++r) {
          c.inputs.push_back({data.data(), 5});
          c.outputs.push_back({data.data() + 100 * (r + 1), size_t(rank == 1 && r == 2 ? 6 : 5)});
        }
        communicator.run(c);
      },
      [](const Error& error, int) {
        EXPECT_NE(std::string(error.what()).find("sends 5 elements"), std::string::npos)
            << error.what();
      });
}

TEST(HostsTimeout, NamesTheRankThatDoesNotCome) {
  const auto store = std::make_shared<MemoryStore>();
  std::barrier together(3);
  runThreads(3, [&](int rank) {
    const auto communicator = Communicator::create(hostPerRank(rank, 3, store));
    if (rank != 2) {
      std::vector<std::byte> data;
      const Error error =
          errorOf([&] { communicator->run(collective(Kind::AllReduce, data, 1000, 3), kArrival); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
    }
    together.arrive_and_wait();
    if (rank == 2) {  // is told when it comes, though all that it waits for is here
      std::vector<std::byte> data;
      const Error error =
          errorOf([&] { communicator->run(collective(Kind::AllReduce, data, 1000, 3)); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
      EXPECT_NE(std::string(error.what()).find("reported by rank"), std::string::npos)
          << error.what();
    }
    together.arrive_and_wait();
  });
}

TEST(HostsAbort, EndsBlockedAndPostedOperationsOfAllRanks) {
  const auto store = std::make_shared<MemoryStore>();
  std::barrier together(3);
  runThreads(3, [&](int rank) {
    const auto communicator = Communicator::create(hostPerRank(rank, 3, store));
    together.arrive_and_wait();  // until nobody is being made any more
    std::vector<std::byte> data;
    if (rank == 2) {
      communicator->abort("for a reason");
    } else {
      const Error error = errorOf([&] {
        if (rank == 0) {
          communicator->run(collective(Kind::AllReduce, data, 1'000'000, 3));
        } else {
          communicator->post(collective(Kind::AllReduce, data, 1'000'000, 3))->wait();
        }
      });
      EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
      EXPECT_NE(std::string(error.what()).find("for a reason"), std::string::npos);
    }
    together.arrive_and_wait();
  });
}

TEST(HostsPosted, OperationsThatNobodyWaitsForComplete) {
  runRanks(
      4,
      [](Communicator& communicator) {
        std::vector<std::shared_ptr<Work>> works;
        std::vector<std::vector<float>> data(20, std::vector<float>(100'000, 1.0F));
        for (auto& buffer : data) {
          Collective c;
          c.kind = Kind::AllReduce;
          c.type = DataType::Float32;
          c.count = buffer.size();
          c.input = c.output = reinterpret_cast<std::byte*>(buffer.data());
          works.push_back(communicator.post(c));
        }
        const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kGuard).count();
        while (!works.back()->done() && nowNanos() < giveUp) ::usleep(100);
        EXPECT_EQ(works.back()->state(), WorkState::Completed);
        for (const auto& buffer : data) {
          EXPECT_EQ(std::count(buffer.begin(), buffer.end(), 4.0F), 100'000);
        }
      },
      1);
}

TEST(Hosts, LeaveNothingBehind) {
  const auto cycle = [] {
    runRanks(
        3, [](Communicator& communicator) { communicator.post({})->wait(); }, 1);
  };
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  cycle();
  const auto before = count();
  for (int i = 0; i < 20; ++i) cycle();
  // What the engine's threads still hold may take a moment.
  const int64_t giveUp = nowNanos() + std::chrono::nanoseconds(kGuard).count();
  while (count() > before && nowNanos() < giveUp) ::usleep(100);
  EXPECT_LE(count(), before);
}

#if !defined(__SANITIZE_THREAD__)

class HostsKilled : public ::testing::TestWithParam<std::tuple<Kind, size_t, bool>> {};

TEST_P(HostsKilled, RankIsNamedByAll) {
  const auto [kind, count, posted] = GetParam();
  constexpr int kRanks = 4, kVictim = 2;
  const TemporaryDirectory directory;
  Shared<Barrier> barrier;
  ForkedRanks ranks(kRanks, [&, kind = kind, count = count, posted = posted](int rank) {
    const auto communicator = Communicator::create(
        hostPerRank(rank, kRanks, std::make_shared<DirectoryStore>(directory.path())));
    if (rank == kVictim && ::fork() == 0) {
      while (::getppid() != 1 && !barrier->go) ::usleep(1000);  // a child that lives on for a while
      ::usleep(300'000);
      ::_exit(0);
    }
    barrier->arrive(kRanks + 1);
    if (rank == kVictim) {
      while (true) ::pause();
    }
    std::vector<std::byte> data;
    Collective c = collective(kind, data, count, kRanks);
    c.root = kVictim;
    const Error error = errorOf([&] {
      while (true) {
        if (posted) {
          communicator->post(c)->wait();
        } else {
          communicator->run(c);
        }
      }
    });
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{kVictim}) << error.what();
    EXPECT_EQ(errorOf([&] { communicator->run({}); }).ranks(), std::vector<int>{kVictim});
  });
  barrier->arrive(kRanks + 1);
  for (int r = 0; r < kRanks; ++r) awaitSleep(ranks.pid(r));
  ranks.kill(kVictim, SIGKILL);
  ranks.expectSuccess({kVictim});
}

INSTANTIATE_TEST_SUITE_P(In, HostsKilled,
                         ::testing::Combine(::testing::Values(Kind::Barrier, Kind::Broadcast,
                                                              Kind::AllReduce, Kind::AllGather,
                                                              Kind::AllToAll, Kind::Recv),
                                            ::testing::Values(8, 400'000), ::testing::Bool()),
                         [](const auto& info) {
                           std::string name(nameOf(std::get<0>(info.param)));
                           std::erase(name, '_');
                           return name + (std::get<1>(info.param) > 8 ? "Large" : "Small") +
                                  (std::get<2>(info.param) ? "Posted" : "Run");
                         });

#endif

}  // namespace
}  // namespace ctran::testing
