// Connections by messages: ranks on hosts of their own (CTRAN_HOST), or on one.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "ctran/communicator.h"
#include "mscclpp/csrc/link.h"
#include "mscclpp/gpu_utils.hpp"
#include "tests/mscclpp/native/ranks.h"
#include "tests/unit/support/stand_ins.h"

namespace mscclpp::testing {
namespace {

constexpr Transport kEthernet = Transport::Ethernet;
constexpr size_t kMegabyte = 1 << 20;

/// All-gather of `bytes` per rank from `input` to `output` over such connections.
void testGather(Communicator& communicator, const EndpointConfig& config, char* input, char* output,
                size_t bytes, int rounds) {
  const int rank = communicator.bootstrap()->getRank();
  const int size = communicator.bootstrap()->getNranks();
  ProxyService service(8, config.device.type);
  const auto connections = connectAll(communicator, config);
  const auto outputs =
      exchange(communicator, communicator.registerMemory(output, bytes * size, config.transport));
  const MemoryId source =
      service.addMemory(communicator.registerMemory(input, bytes, config.transport));
  std::vector<DeviceHandle<PortChannel>> handles;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const SemaphoreId semaphore = service.buildAndAddSemaphore(communicator, connections[r]);
    handles.push_back(
        service.portChannel(semaphore, service.addMemory(outputs[r]), source).deviceHandle());
  }
  service.startProxy(true);
  for (int round = 0; round < rounds; ++round) {
    std::fill_n(output, bytes * size, char(0x5a));
    for (size_t i = 0; i < bytes; ++i) {
      input[i] = output[rank * bytes + i] = static_cast<char>(pattern(rank, i, round));
    }
    host::launch(1, 8, 0, [&] { gatherByProxy(handles.data(), size - 1, rank, bytes); });
    for (int r = 0; r < size; ++r) {
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(output[r * bytes + i], static_cast<char>(pattern(r, i, round)))
            << "byte " << i << " of rank " << r << " in round " << round;
      }
    }
  }
  communicator.bootstrap()->barrier();
  service.stopProxy();
}

void testGather(Communicator& communicator, const EndpointConfig& config, size_t bytes,
                int rounds = kThreadSanitizer ? 1 : 5) {
  std::vector<char> input(bytes), output(bytes * communicator.bootstrap()->getNranks());
  testGather(communicator, config, input.data(), output.data(), bytes, rounds);
}

TEST(BetweenHosts, PortChannelsGatherAnySize) {
  for (const int size : {2, 3}) {
    runHosts(size, [](Communicator& c) {
      for (const size_t bytes : {size_t{1}, size_t{255}, size_t{256}, size_t{257}, kMegabyte}) {
        testGather(c, kEthernet, bytes);
      }
    });
  }
}

TEST(BetweenHosts, LargeMessagesHaveSeveralParts) {
  const size_t part = LinkMessage::kChunk;
  runHosts(2, [&](Communicator& c) {
    for (const size_t bytes : {part - 1, part, part + 1, 2 * part + 3}) {
      if (kThreadSanitizer && bytes != part + 1) continue;  // of which each takes long
      testGather(c, kEthernet, bytes, 1);
    }
  });
}

TEST(BetweenHosts, EthernetServesRanksOfOneHostToo) {
  runRanks(3, [](Communicator& c) {
    testGather(c, kEthernet, 1000);
    testGather(c, kEthernet, kMegabyte);
  });
}

TEST(BetweenHosts, PortChannelsOfGpusGather) {
  if (kThreadSanitizer) GTEST_SKIP() << "the stand-in has one GPU for each process";
  runHosts(2, [](Communicator& c) {
    ctran::testing::standInRuntime();
    for (const size_t bytes : {size_t{5}, size_t{256}, LinkMessage::kChunk + 5}) {
      const auto input = detail::allocateMappable(bytes, DeviceType::GPU);
      const auto output = detail::allocateMappable(2 * bytes, DeviceType::GPU);
      testGather(c, {kEthernet, Device(DeviceType::GPU)}, static_cast<char*>(input.get()),
                 static_cast<char*>(output.get()), bytes, 3);
    }
  });
}

/// Two ranks, a connection, and memory of the other.
struct Pair {
  explicit Pair(Communicator& communicator, size_t bytes = 4096,
                Transport transport = Transport::Ethernet)
      : communicator(communicator),
        rank(communicator.bootstrap()->getRank()),
        connection(connectAll(communicator, transport)[1 - rank]),
        data(bytes),
        own(communicator.registerMemory(data.data(), bytes, transport)),
        there(exchange(communicator, own)[1 - rank]) {}

  void barrier() const { communicator.bootstrap()->barrier(); }

  Communicator& communicator;
  const int rank;
  Connection connection;
  std::vector<char> data;
  RegisteredMemory own;
  RegisteredMemory there;
};

TEST(BetweenHosts, ASignalComesBehindAllThatWasWrittenBefore) {
  runHosts(2, [](Communicator& communicator) {
    constexpr int kSignals = 300;
    Pair pair(communicator, 16384);
    std::vector<char> source(8192);
    const auto from = communicator.registerMemory(source.data(), source.size(), kEthernet);
    Host2HostSemaphore semaphore(communicator, pair.connection);
    for (int i = 0; i < kSignals; ++i) {
      // Parts of any size, in both halves in turn; empty ones too.
      const size_t bytes = i * 37 % 8192;
      const size_t half = i % 2 * 8192;
      if (pair.rank == 0) {
        for (size_t b = 0; b < bytes; ++b) source[b] = static_cast<char>(pattern(0, b, i));
        pair.connection.write(pair.there, half, from, 0, bytes / 3);
        pair.connection.write(pair.there, half + bytes / 3, from, bytes / 3, bytes - bytes / 3);
        pair.connection.flush();
        std::fill(source.begin(), source.end(), char(0));  // the sources may be reused
        semaphore.signal();
        semaphore.wait();
      } else {
        semaphore.wait();
        for (size_t b = 0; b < bytes; ++b) {
          ASSERT_EQ(pair.data[half + b], static_cast<char>(pattern(0, b, i))) << i << " " << b;
        }
        semaphore.signal();
      }
    }
    EXPECT_FALSE(semaphore.poll());
    pair.barrier();
  });
}

TEST(BetweenHosts, NoOrderOfConnectingMakesRanksWaitForEachOther) {
  runHosts(3, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    // Endpoints are exchanged first; then rank r connects to r + 1, and uses that, before r + 2.
    std::vector<Endpoint> own(3), theirs(3);
    for (int r = 0; r < 3; ++r) {
      if (r == rank) continue;
      own[r] = communicator.context()->createEndpoint(kEthernet);
      communicator.bootstrap()->send(own[r].serialize(), r, 0);
    }
    for (int r = 0; r < 3; ++r) {
      std::vector<char> bytes;
      if (r == rank) continue;
      communicator.bootstrap()->recv(bytes, r, 0);
      theirs[r] = Endpoint::deserialize(bytes);
    }
    std::vector<Connection> connections(3);
    for (const int step : {1, 2}) {
      const int peer = (rank + step) % 3;
      connections[peer] = communicator.context()->connect(own[peer], theirs[peer]);
    }
    for (const int step : {1, 2}) connections[(rank + step) % 3].flush();
    communicator.bootstrap()->barrier();
  });
}

TEST(BetweenHosts, WhatIsNoneOfTheConnectionsMemoryIsRefusedAtOnce) {
  runHosts(2, [](Communicator& communicator) {
    Pair pair(communicator, 100);
    const auto ofOthers = communicator.registerMemory(pair.data.data(), 100, Transport::CudaIpc);
    const auto alone = exchange(communicator, ofOthers)[1 - pair.rank];
    const auto why = [&](const RegisteredMemory& to, uint64_t offset, uint64_t bytes) {
      return errorOf([&] { pair.connection.write(to, offset, pair.own, 0, bytes); });
    };
    EXPECT_TRUE(has(why(pair.there, 50, 51), "bytes 50 to 101 of the destination, which has 100"));
    EXPECT_TRUE(has(why(pair.there, ~uint64_t{0}, 2), "of the destination, which has 100"));
    EXPECT_TRUE(has(why(alone, 0, 1), "is not registered for Ethernet"));
    if (!kThreadSanitizer) {
      const std::string rank = "rank " + std::to_string(1 - pair.rank);
      EXPECT_TRUE(
          has(why(pair.own, 0, 1), "to which this connection does not lead: it leads to " + rank));
      EXPECT_TRUE(has(errorOf([&] { pair.there.data(); }), "is on another host"));
    }
    // None of it has harmed the connection.
    pair.connection.write(pair.there, 0, pair.own, 1, 1);
    pair.barrier();
  });
}

TEST(BetweenHosts, MemoryChannelsNeedMappedMemory) {
  runHosts(2, [](Communicator& communicator) {
    Pair pair(communicator);
    const std::string error =
        errorOf([&] { MemoryDevice2DeviceSemaphore semaphore(communicator, pair.connection); });
    EXPECT_TRUE(has(error, "semaphores of CudaIpc connections alone, not of Ethernet")) << error;
    pair.barrier();
  });
}

/// What rank 0 sends to memory `forged` is refused by rank 1; both ends say why.
void testRefusal(const std::function<RegisteredMemory(const RegisteredMemory&)>& forged,
                 const std::string& why, bool forgets = false) {
  runHosts(2, [&](Communicator& communicator) {
    Pair pair(communicator, 1000);
    Host2HostSemaphore semaphore(communicator, pair.connection);
    std::vector<char> guard(1000, char(7));
    pair.data = guard;
    if (pair.rank == 1 && forgets) pair.own = RegisteredMemory();
    pair.barrier();
    std::string error;
    if (pair.rank == 0) {
      const RegisteredMemory to = forged(pair.there);
      std::vector<char> source(2000);
      const auto from = communicator.registerMemory(source.data(), source.size(), kEthernet);
      error = errorOf([&] {
        // What is wrong is noticed by the other end: one of the next uses fails.
        for (int i = 0; i < 1'000'000; ++i) {
          pair.connection.write(to, 0, from, 0, to.size());
        }
      });
      EXPECT_TRUE(has(error, "rank 1 (process")) << error;
      EXPECT_TRUE(has(error, "has refused what it was asked for")) << error;
    } else {
      EXPECT_TRUE(has(errorOf([&] { semaphore.wait(); }), "waiting for rank 0"));
      error = errorOf([&] { pair.connection.flush(); });
      EXPECT_TRUE(has(error, "rank 0 (process")) << error;
    }
    EXPECT_TRUE(has(error, why)) << error;
    EXPECT_EQ(pair.data, guard);
    pair.barrier();
  });
}

MemoryName nameOf(const RegisteredMemory& memory) {
  MemoryName name;
  const std::vector<char> bytes = memory.serialize();
  std::memcpy(&name, bytes.data(), sizeof name);
  return name;
}

RegisteredMemory memoryOf(const MemoryName& name) {
  std::vector<char> bytes(sizeof name);
  std::memcpy(bytes.data(), &name, sizeof name);
  return RegisteredMemory::deserialize(bytes);
}

TEST(BetweenHosts, ARankThatLiesAboutSizesWritesNothing) {
  for (const uint64_t size : {1001, 2000}) {
    testRefusal(
        [&](const RegisteredMemory& memory) {
          MemoryName name = nameOf(memory);
          name.size = size;
          return memoryOf(name);
        },
        "of memory that has 1000");
  }
}

TEST(BetweenHosts, MemoryThatWasNeverRegisteredIsNotWritten) {
  testRefusal(
      [](const RegisteredMemory& memory) {
        MemoryName name = nameOf(memory);
        name.exposed ^= 1;
        return memoryOf(name);
      },
      "that is not registered any more, or never was");
}

TEST(BetweenHosts, MemoryThatIsForgottenIsNotWritten) {
  testRefusal([](const RegisteredMemory& memory) { return memory; },
              "that is not registered any more", true);
}

/// What speaks the protocol, and says what it likes.
class Liar {
 public:
  explicit Liar(const Endpoint& honest) {
    std::memcpy(&name_, honest.serialize().data(), sizeof name_);
    other_ = name_.handle.data();
    name_.handle = {};
    initPoint_.handle().copy(name_.handle.data(), name_.handle.size() - 1);
  }

  Endpoint endpoint() const {
    std::vector<char> bytes(sizeof name_);
    std::memcpy(bytes.data(), &name_, sizeof name_);
    return Endpoint::deserialize(bytes);
  }

  void meet() {
    std::vector<std::string> handles{initPoint_.handle(), other_};
    std::sort(handles.begin(), handles.end());
    const int own = handles[0] == other_ ? 1 : 0;
    std::shared_ptr<ctran::api::Communicator> both[2];
    both[0] = initPoint_.form(handles, "mscclpp first");
    both[1] = initPoint_.form(handles, "mscclpp second");
    out_ = both[own];
    in_ = both[1 - own];
  }

  void say(const void* data, size_t bytes) { run(*out_, data, nullptr, bytes); }

  /// What the other end says in the end.
  std::string goodbye() {
    LinkMessage message;
    run(*in_, nullptr, &message, sizeof message);
    EXPECT_EQ(message.kind, LinkMessage::Goodbye);
    return {message.text.data(), message.textBytes};
  }

 private:
  static void run(ctran::api::Communicator& engine, const void* from, void* to, size_t bytes) {
    ctran::api::Call call;
    call.kind = from != nullptr ? ctran::CollectiveKind::Send : ctran::CollectiveKind::Recv;
    call.count = bytes;
    call.root = 1 - engine.rank();
    call.input = from;
    call.output = to;
    engine.run(call);
  }

  EndpointName name_;
  std::string other_;
  ctran::api::InitPoint initPoint_;
  std::shared_ptr<ctran::api::Communicator> in_, out_;
};

/// A connection to a liar, and memory that it knows.
struct LiedTo {
  explicit LiedTo(size_t bytes = 1000)
      : context(Context::create()),
        endpoint(context->createEndpoint(kEthernet)),
        liar(endpoint),
        connection(context->connect(endpoint, liar.endpoint())),
        data(bytes, char(7)),
        memory(context->registerMemory(data.data(), data.size(), kEthernet)) {
    liar.meet();
  }

  LinkMessage message(LinkMessage::Kind kind) const {
    LinkMessage result;
    result.kind = kind;
    result.memory = nameOf(memory).exposed;
    return result;
  }

  const std::shared_ptr<Context> context;
  const Endpoint endpoint;
  Liar liar;
  Connection connection;
  std::vector<char> data;
  RegisteredMemory memory;
};

TEST(BetweenHosts, MessagesThatMakeNoSenseEndTheConnection) {
  const auto refused = [](const std::function<void(LinkMessage&)>& change, const char* why) {
    LiedTo lied;
    LinkMessage message = lied.message(LinkMessage::Write);
    message.size = 10;
    change(message);
    lied.liar.say(&message, sizeof message);
    EXPECT_TRUE(has(lied.liar.goodbye(), why));
    EXPECT_TRUE(has(errorOf([&] { lied.connection.flush(); }), why));
    EXPECT_EQ(std::count(lied.data.begin(), lied.data.end(), char(7)), 1000);
  };
  refused([](LinkMessage& m) { m.magic ^= 1; }, "none of a connection");
  refused([](LinkMessage& m) { m.kind = 77; }, "unknown kind 77");
  refused([](LinkMessage& m) { m.offset = 991; }, "of memory that has 1000");
  refused([](LinkMessage& m) { m.offset = ~uint64_t{0}; }, "of memory that has 1000");
  refused([](LinkMessage& m) { m.size = ~uint64_t{0}; }, "of memory that has 1000");
  refused([](LinkMessage& m) { m.memory = 0; }, "not registered any more, or never was");
  refused(
      [](LinkMessage& m) {
        m.kind = LinkMessage::Update;
        m.offset = 993;
      },
      "of memory that has 1000");
  refused(
      [](LinkMessage& m) {
        m.kind = LinkMessage::Update;
        m.offset = 3;
      },
      "not aligned");
}

TEST(BetweenHosts, AGoodbyeIsReadWithinItsMessage) {
  LiedTo lied;
  LinkMessage message = lied.message(LinkMessage::Goodbye);
  message.textBytes = 1 << 30;
  message.text.fill('\n');
  lied.liar.say(&message, sizeof message);
  lied.liar.goodbye();
  const std::string error = errorOf([&] { lied.connection.flush(); });
  EXPECT_TRUE(has(error, "has refused what it was asked for")) << error;
  EXPECT_TRUE(has(error, ": " + std::string(LinkMessage::kInline, '?') + " (")) << error;
}

TEST(BetweenHosts, MemoryThatGoesWhileItIsWrittenIsWrittenNoMore) {
  constexpr size_t kFirst = LinkMessage::kChunk;
  LiedTo lied(kFirst + 1000);
  LinkMessage message = lied.message(LinkMessage::Write);
  message.size = lied.data.size();
  lied.liar.say(&message, sizeof message);
  const std::vector<char> part(kFirst, char(9));
  lied.liar.say(part.data(), part.size());
  // So large a message has been taken in part at least. The rest does not come.
  lied.memory = RegisteredMemory();
  EXPECT_TRUE(has(lied.liar.goodbye(), "memory went while it was written to"));
  EXPECT_TRUE(has(errorOf([&] { lied.connection.flush(); }), "memory went"));
  EXPECT_EQ(std::count(lied.data.begin() + kFirst, lied.data.end(), char(7)), 1000);
}

TEST(BetweenHosts, EndpointsThatMakeNoSenseAreRefused) {
  const auto context = Context::create();
  const Endpoint endpoint = context->createEndpoint(kEthernet);
  const auto refused = [&](const std::function<void(EndpointName&)>& change) {
    EndpointName name;
    std::memcpy(&name, endpoint.serialize().data(), sizeof name);
    change(name);
    std::vector<char> bytes(sizeof name);
    std::memcpy(bytes.data(), &name, sizeof name);
    EXPECT_TRUE(has(errorOf([&] { Endpoint::deserialize(bytes); }), "no endpoint"));
  };
  refused([](EndpointName& name) { name.handle.fill('a'); });
  refused([](EndpointName& name) { name.handle[3] = '\n'; });
  refused([](EndpointName& name) { name.handle = {}; });
  refused([](EndpointName& name) { name.transport = 11; });
  refused([](EndpointName& name) { name.transport = static_cast<int>(Transport::CudaIpc); });
  refused([](EndpointName& name) { ++name.magic; });
}

TEST(BetweenHosts, AnEndpointServesOneConnection) {
  const auto context = Context::create();
  const Endpoint one = context->createEndpoint(kEthernet);
  const Endpoint other = context->createEndpoint(kEthernet);
  const Connection there = context->connect(one, other);
  EXPECT_TRUE(has(errorOf([&] { context->connect(one, other); }), "serves one connection"));
  const Connection back = context->connect(other, one);
  Connection(there).flush();
  const Endpoint mapped = context->createEndpoint(Transport::CudaIpc);
  EXPECT_TRUE(has(errorOf([&] { context->connect(mapped, one); }),
                  "one end of the connection is CudaIpc, the other Ethernet"));
}

TEST(BetweenHosts, ARankThatDiesEndsWaitsAndUses) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  const ctran::testing::TemporaryDirectory directory;
  ForkedRanks ranks(2, [&](int rank) {
    ::setenv("CTRAN_HOST", ("host" + std::to_string(rank)).c_str(), 1);
    const auto bootstrap = std::make_shared<TcpBootstrap>(rank, 2);
    bootstrap->initializeByStore("file://" + directory.path());
    Communicator communicator(bootstrap);
    Pair pair(communicator);
    Host2DeviceSemaphore semaphore(communicator, pair.connection);
    auto handle = semaphore.deviceHandle();
    semaphore.signal();
    host::launch(1, 1, 0, [&] { handle.wait(); });
    if (rank == 1) ::raise(SIGKILL);
    const std::string error = errorOf([&] { host::launch(1, 2, 0, [&] { handle.wait(); }); });
    EXPECT_TRUE(has(error, "waiting for rank 1, whose process has ended")) << error;
    const std::string use = errorOf([&] { pair.connection.write(pair.there, 0, pair.own, 0, 1); });
    EXPECT_TRUE(has(use, "rank 1 (process")) << use;
    EXPECT_TRUE(has(use, "has ended, or is not reached any more")) << use;
  });
  ranks.expectSuccess({1});
}

TEST(BetweenHosts, ASignalBeforeAGoodbyeIsSeen) {
  for (int turn = 0; turn < 10; ++turn) {
    runHosts(2, [](Communicator& communicator) {
      const int rank = communicator.bootstrap()->getRank();
      auto pair = std::make_unique<Pair>(communicator);
      auto semaphore = std::make_unique<Host2DeviceSemaphore>(communicator, pair->connection);
      if (rank == 1) {
        semaphore->signal();
        semaphore.reset();
        pair.reset();  // says goodbye
      } else {
        auto handle = semaphore->deviceHandle();
        host::launch(1, 1, 0, [&] { handle.wait(); });
        const std::string error = errorOf([&] { host::launch(1, 1, 0, [&] { handle.wait(); }); });
        EXPECT_TRUE(has(error, "waiting for rank 1, which has closed the connection")) << error;
        const std::string use = errorOf([&] { semaphore->signal(); });
        EXPECT_TRUE(has(use, "rank 1 (process")) << use;
        EXPECT_TRUE(has(use, "has closed the connection")) << use;
      }
      communicator.bootstrap()->barrier();
    });
  }
}

size_t countOf(const char* folder) {
  const auto all = std::filesystem::directory_iterator(folder);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST(BetweenHosts, ConnectionsLeaveNoThreadsAndDescriptors) {
  const auto context = Context::create();
  const auto connectAndUse = [&](bool isUsed) {
    const Endpoint one = context->createEndpoint(kEthernet);
    const Endpoint other = context->createEndpoint(kEthernet);
    Connection there = context->connect(one, other);
    const Connection back = context->connect(other, one);
    if (!isUsed) return;
    std::vector<char> data(10);
    const auto memory = context->registerMemory(data.data(), 10, kEthernet);
    there.write(memory, 5, memory, 0, 5);
    there.flush();
  };
  connectAndUse(true);  // what the engine keeps for the process
  const auto threads = countOf("/proc/self/task"), files = countOf("/proc/self/fd");
  for (int i = 0; i < 20; ++i) connectAndUse(i % 2 == 0);
  // The engine ends what it has to send on a thread of its own.
  const auto giveUp = std::chrono::steady_clock::now() + ctran::testing::kGuard;
  while (std::chrono::steady_clock::now() < giveUp &&
         (countOf("/proc/self/task") > threads || countOf("/proc/self/fd") > files)) {
    std::this_thread::yield();
  }
  EXPECT_LE(countOf("/proc/self/task"), threads);
  EXPECT_LE(countOf("/proc/self/fd"), files);
}

TEST(BetweenHosts, ConnectionsThatNobodyAnswersEnd) {
  const auto context = Context::create();
  const Endpoint one = context->createEndpoint(kEthernet);
  const Endpoint other = context->createEndpoint(kEthernet);
  const auto begin = std::chrono::steady_clock::now();
  context->connect(one, other);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

/// Ranks of two hosts with RDMA devices, or without. The library is chosen before a rank looks for
/// one.
void runWithRdma(bool hasDevices, const std::function<void(Communicator&)>& body) {
  if (kThreadSanitizer) GTEST_SKIP() << "the ranks are on one host";
  ::setenv("CTRAN_IB", hasDevices ? "1" : "0", 1);
  if (hasDevices) ::setenv("CTRAN_VERBS_LIBRARY", STAND_IN_VERBS, 1);
  runHosts(2, body);
  ::unsetenv("CTRAN_IB");
  ::unsetenv("CTRAN_VERBS_LIBRARY");
}

TEST(BetweenHosts, PortChannelsGatherOverRdma) {
  runWithRdma(true, [](Communicator& c) {
    for (const size_t bytes : {size_t{1}, size_t{257}, kMegabyte}) {
      testGather(c, Transport::IB0, bytes);
    }
  });
}

TEST(BetweenHosts, WithoutRdmaThereIsNoIb) {
  runWithRdma(false, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    Connection connection = connectAll(communicator, Transport::IB3)[1 - rank];
    const std::string error = errorOf([&] { connection.flush(); });
    EXPECT_TRUE(has(error, "there is no IB3 to rank " + std::to_string(1 - rank))) << error;
    EXPECT_TRUE(has(error, "CTRAN_IB is off")) << error;
    communicator.bootstrap()->barrier();
  });
}

TEST(BetweenHosts, WithinAHostThereIsNoIb) {
  runRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    Connection connection = connectAll(communicator, Transport::IB0)[1 - rank];
    EXPECT_TRUE(has(errorOf([&] { connection.flush(); }), "both ends are on one host"));
    communicator.bootstrap()->barrier();
  });
}

}  // namespace
}  // namespace mscclpp::testing
