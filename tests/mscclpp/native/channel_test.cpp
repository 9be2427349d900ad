#include <gtest/gtest.h>

#include <sys/prctl.h>

#include "mscclpp/concurrency_device.hpp"
#include "mscclpp/gpu_utils.hpp"
#include "mscclpp/switch_channel.hpp"
#include "tests/mscclpp/native/ranks.h"

namespace mscclpp::testing {
namespace {

constexpr int kRounds = 20;

/// A rank's memories, channels to all others, and where they are.
struct MemoryChannels {
  explicit MemoryChannels(Communicator& communicator, size_t bytes)
      : own(bytes), packets(2 * 2 * bytes) {
    const auto connections = connectAll(communicator);
    const auto outputs =
        exchange(communicator, communicator.registerMemory(own.data(), bytes, Transport::CudaIpc));
    const auto buffers =
        exchange(communicator,
                 communicator.registerMemory(packets.data(), packets.bytes(), Transport::CudaIpc));
    const auto source = communicator.registerMemory(own.data(), bytes, Transport::CudaIpc);
    for (size_t r = 0; r < connections.size(); ++r) {
      if (static_cast<int>(r) == communicator.bootstrap()->getRank()) continue;
      const auto semaphore =
          std::make_shared<MemoryDevice2DeviceSemaphore>(communicator, connections[r]);
      channels.emplace_back(semaphore, outputs[r], source);
      handles.push_back(channels.back().deviceHandle());
      packetChannels.emplace_back(semaphore, buffers[r], source, packets.data());
      packetHandles.push_back(packetChannels.back().deviceHandle());
    }
  }

  GpuBuffer<char> own;
  GpuBuffer<char> packets;
  std::vector<MemoryChannel> channels;
  std::vector<MemoryChannel> packetChannels;
  std::vector<DeviceHandle<MemoryChannel>> handles;
  std::vector<DeviceHandle<MemoryChannel>> packetHandles;
};

/// Each rank's block of `bytes` to all others: block b to the peer of channel b.
void gather(DeviceHandle<MemoryChannel>* handles, int rank, size_t bytes) {
  auto& channel = handles[blockIdx.x];
  if (threadIdx.x == 0) {  // the peer has read what was there before
    channel.signal();
    channel.wait();
  }
  __syncthreads();
  channel.put(static_cast<uint64_t>(rank) * bytes, bytes, threadIdx.x, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    channel.signal();
    channel.wait();
  }
}

TEST(MemoryChannel, GathersAnySize) {
  runRanks(3, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    for (const size_t bytes : {1, 7, 64, 1000, 65'536 + 3}) {
      MemoryChannels ranks(communicator, 3 * bytes);
      for (int round = 0; round < kRounds; ++round) {
        char* const data = ranks.own.data();
        for (size_t i = 0; i < bytes; ++i) {
          data[rank * bytes + i] = static_cast<char>(pattern(rank, i, round));
        }
        host::launch(2, 32, 0, [&] { gather(ranks.handles.data(), rank, bytes); });
        for (int r = 0; r < 3; ++r) {
          for (size_t i = 0; i < bytes; ++i) {
            ASSERT_EQ(data[r * bytes + i], static_cast<char>(pattern(r, i, round)))
                << "byte " << i << " of rank " << r << " in round " << round;
          }
        }
      }
      communicator.bootstrap()->barrier();
    }
  });
}

/// All-reduce: my words to all as packets; theirs are added in the order of ranks.
template <class Packet>
void reduceByPackets(DeviceHandle<MemoryChannel>* handles, int peers, int rank, uint32_t* data,
                     size_t count, uint32_t flag, size_t half) {
  constexpr size_t kBytes = sizeof(PacketPayload<Packet>);
  const size_t slot = (count * 4 + kBytes - 1) / kBytes * sizeof(Packet);
  const size_t begin = half * slot * static_cast<size_t>(peers + 1);
  for (int p = 0; p < peers; ++p) {
    handles[p].putPackets<Packet>(begin + rank * slot, 0, count * 4, threadIdx.x, blockDim.x, flag);
  }
  __syncthreads();
  std::vector<uint32_t> theirs(count);
  for (int p = 0; p < peers; ++p) {
    const int peer = p < rank ? p : p + 1;
    copyFromPackets<Packet>(theirs.data(),
                            static_cast<char*>(handles[p].packetBuffer_) + begin + peer * slot,
                            count * 4, 0, 1, flag, handles[p].semaphore_.limit);
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) data[i] += theirs[i];
  }
}

template <class Packet>
void testPackets(Communicator& communicator) {
  const int rank = communicator.bootstrap()->getRank();
  constexpr size_t kCount = 257;  // no whole number of packets
  MemoryChannels ranks(communicator, 2 * 3 * (kCount + 1) * 4);
  auto* const data = reinterpret_cast<uint32_t*>(ranks.own.data());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kCount; ++i) data[i] = pattern(rank, i, round);
    host::launch(1, 4, 0, [&] {
      reduceByPackets<Packet>(ranks.packetHandles.data(), 2, rank, data, kCount, round + 1,
                              round % 2);
    });
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(data[i], pattern(0, i, round) + pattern(1, i, round) + pattern(2, i, round));
    }
  }
  communicator.bootstrap()->barrier();
}

TEST(MemoryChannel, PacketsNeedNoBarrier) {
  runRanks(3, testPackets<LL16Packet>);
  runRanks(3, testPackets<LL8Packet>);
}

TEST(MemoryChannel, ReadsWritesAndGets) {
  runRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    MemoryChannels ranks(communicator, 4096);
    auto* const data = reinterpret_cast<uint64_t*>(ranks.own.data());
    for (uint64_t i = 0; i < 256; ++i) data[i] = static_cast<uint64_t>(rank) * 1000 + i;
    host::launch(1, 1, 0, [&] {
      auto& channel = ranks.handles[0];
      channel.signal();
      channel.wait();
      EXPECT_EQ(channel.read<uint64_t>(17), static_cast<uint64_t>(1 - rank) * 1000 + 17);
      channel.get(8, 2048, 800, 0, 1);
      channel.write<uint64_t>(500, 77 + static_cast<uint64_t>(rank));
      channel.signal();
      channel.wait();
    });
    for (uint64_t i = 0; i < 100; ++i) {
      ASSERT_EQ(data[256 + i], static_cast<uint64_t>(1 - rank) * 1000 + i + 1);
    }
    EXPECT_EQ(data[500], 77U + static_cast<uint64_t>(1 - rank));
  });
}

/// With memory that others can map, or with any.
void testPortChannels(Communicator& communicator, bool mappable, size_t bytes) {
  const int rank = communicator.bootstrap()->getRank();
  const int size = communicator.bootstrap()->getNranks();
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // siblings may write this process' memory
  GpuBuffer<char> mapped(bytes * size);
  std::vector<char> any(bytes * size);
  char* const output = mappable ? mapped.data() : any.data();
  std::vector<char> input(bytes);
  ProxyService service(8);
  const auto connections = connectAll(communicator);
  const auto outputs =
      exchange(communicator, communicator.registerMemory(output, bytes * size, Transport::CudaIpc));
  const MemoryId source =
      service.addMemory(communicator.registerMemory(input.data(), bytes, Transport::CudaIpc));
  std::vector<DeviceHandle<PortChannel>> handles;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const SemaphoreId semaphore = service.buildAndAddSemaphore(communicator, connections[r]);
    handles.push_back(
        service.portChannel(semaphore, service.addMemory(outputs[r]), source).deviceHandle());
  }
  service.startProxy(true);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < bytes; ++i) input[i] = static_cast<char>(pattern(rank, i, round));
    std::copy(input.begin(), input.end(), output + rank * bytes);
    host::launch(1, 8, 0, [&] { gatherByProxy(handles.data(), size - 1, rank, bytes); });
    for (int r = 0; r < size; ++r) {
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(output[r * bytes + i], static_cast<char>(pattern(r, i, round)));
      }
    }
  }
  communicator.bootstrap()->barrier();
  service.stopProxy();
}

TEST(PortChannel, GathersThroughTheProxy) {
  for (const size_t bytes : {1, 1000, 100'001}) {
    runRanks(3, [&](Communicator& c) { testPortChannels(c, true, bytes); });
  }
}

TEST(PortChannel, GathersToMemoryThatNobodyElseMaps) {
  runRanks(3, [](Communicator& c) { testPortChannels(c, false, 50'000); });
}

TEST(PortChannel, MoreRequestsThanPlaces) {
  runRanks(2, [](Communicator& communicator) {
    constexpr int kWords = 1000;
    const int rank = communicator.bootstrap()->getRank();
    GpuBuffer<uint64_t> mine(kWords);
    GpuBuffer<uint64_t> theirs(kWords);
    for (int i = 0; i < kWords; ++i) mine.data()[i] = pattern(rank, i, 0);
    ProxyService service(4);
    const Connection connection = connectAll(communicator)[1 - rank];
    const auto there = exchange(
        communicator,
        communicator.registerMemory(theirs.data(), theirs.bytes(), Transport::CudaIpc))[1 - rank];
    const SemaphoreId id = service.buildAndAddSemaphore(communicator, connection);
    const MemoryId source = service.addMemory(
        communicator.registerMemory(mine.data(), mine.bytes(), Transport::CudaIpc));
    auto handle = service.portChannel(id, service.addMemory(there), source).deviceHandle();
    service.startProxy();
    DeviceSyncer syncer;
    host::launch(3, 4, 0, [&] {
      const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
      for (unsigned i = first; i < kWords; i += 12) handle.put(i * 8, 8);
      syncer.sync(3);
      if (first == 0) {
        handle.signal();
        handle.flush();
        handle.wait();
      }
    });
    for (int i = 0; i < kWords; ++i) ASSERT_EQ(theirs.data()[i], pattern(1 - rank, i, 0));
    communicator.bootstrap()->barrier();
  });
}

TEST(PortChannel, ARequestThatIsWrongEndsTheWait) {
  runRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    GpuBuffer<char> memory(100);
    ProxyService service;
    const auto own = communicator.registerMemory(memory.data(), 100, Transport::CudaIpc);
    const auto there = exchange(communicator, own)[1 - rank];
    const SemaphoreId id =
        service.buildAndAddSemaphore(communicator, connectAll(communicator)[1 - rank]);
    auto handle =
        service.portChannel(id, service.addMemory(there), service.addMemory(own)).deviceHandle();
    service.startProxy();
    EXPECT_NE(errorOf([&] {
                host::launch(1, 1, 0, [&] { handle.putWithSignalAndFlush(50, 0, 51); });
              }).find("after an earlier failure"),
              std::string::npos);
    const std::string why = errorOf([&] { service.stopProxy(); });
    EXPECT_NE(why.find("bytes 50 to 101 of the destination, which has 100"), std::string::npos)
        << why;
    communicator.bootstrap()->barrier();
  });
}

TEST(PortChannel, AProxyThatWasNotStartedIsNamed) {
  runRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    ProxyService service;
    const SemaphoreId id =
        service.buildAndAddSemaphore(communicator, connectAll(communicator)[1 - rank]);
    auto handle = service.basePortChannel(id).deviceHandle();
    const std::string why = errorOf([&] { host::launch(1, 1, 0, [&] { handle.flush(100); }); });
    EXPECT_NE(why.find("for the proxy, which has to be started"), std::string::npos) << why;
    communicator.bootstrap()->barrier();
  });
}

TEST(SwitchChannel, ARankIsNamedOnce) {
  runRanks(2, [](Communicator& communicator) {
    const std::shared_ptr<Communicator> here(&communicator, [](Communicator*) {});
    EXPECT_NE(errorOf([&] {
                connectNvlsCollective(here, {0, 1, 1}, 64);
              }).find("named twice"),
              std::string::npos);
    communicator.bootstrap()->barrier();
  });
}

TEST(Semaphore, ThatWasNotBuiltIsRefused) {
  const Semaphore none;
  for (const std::string& why : {errorOf([&] { Host2HostSemaphore(none).wait(); }),
                                 errorOf([&] { Host2DeviceSemaphore{none}; }),
                                 errorOf([&] { MemoryDevice2DeviceSemaphore{none}; })}) {
    EXPECT_NE(why.find("no semaphore was built here"), std::string::npos) << why;
  }
}

TEST(Semaphore, HostsSignalHosts) {
  runRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    Host2HostSemaphore semaphore(communicator, connectAll(communicator)[1 - rank]);
    for (int i = 0; i < 100; ++i) {
      if (rank == i % 2) semaphore.signal();
      if (rank != i % 2) semaphore.wait();
    }
    EXPECT_FALSE(semaphore.poll());
    communicator.bootstrap()->barrier();
  });
}

TEST(Semaphore, RelaxedSignalsAreCountedToo) {
  runRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    MemoryDevice2DeviceSemaphore semaphore(communicator, connectAll(communicator)[1 - rank]);
    auto handle = semaphore.deviceHandle();
    host::launch(1, 1, 0, [&] {
      for (int i = 0; i < 200; ++i) handle.relaxedSignal();
      for (int i = 0; i < 100; ++i) handle.relaxedWait();
      for (int i = 0; i < 100; ++i) handle.wait();
      EXPECT_FALSE(handle.poll());
    });
    communicator.bootstrap()->barrier();
  });
}

TEST(Semaphore, ARankThatDiesEndsTheWait) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  const ctran::testing::TemporaryDirectory directory;
  ForkedRanks ranks(2, [&](int rank) {
    const auto bootstrap = std::make_shared<TcpBootstrap>(rank, 2);
    bootstrap->initializeByStore("file://" + directory.path());
    Communicator communicator(bootstrap);
    MemoryDevice2DeviceSemaphore semaphore(communicator, connectAll(communicator)[1 - rank]);
    auto handle = semaphore.deviceHandle();
    // It leaves when the other has all it needs.
    char done = 0;
    if (rank == 1) {
      bootstrap->recv(&done, 1, 0, 1);
      ::_exit(0);
    }
    bootstrap->send(&done, 1, 1, 1);
    const std::string error = errorOf([&] { host::launch(1, 2, 0, [&] { handle.wait(); }); });
    EXPECT_NE(error.find("rank 1, whose process has ended"), std::string::npos) << error;
  });
  ranks.expectSuccess();
}

TEST(RegisteredMemory, OthersMapWhatComesFromGpuBuffer) {
  runRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    GpuBuffer<int> buffer(100);
    std::vector<int> any(100);
    for (int i = 0; i < 100; ++i) buffer.data()[i] = any[i] = rank * 100 + i;
    // A part of it, at any offset.
    const auto part = exchange(
        communicator, communicator.registerMemory(buffer.data() + 7, 40, Transport::CudaIpc));
    EXPECT_EQ(static_cast<int*>(part[1 - rank].data())[3], (1 - rank) * 100 + 10);
    EXPECT_EQ(part[1 - rank].size(), 40U);
    const auto others =
        exchange(communicator, communicator.registerMemory(any.data(), 400, Transport::CudaIpc));
    if (!kThreadSanitizer) {  // within one process all is reached
      EXPECT_NE(errorOf([&] { others[1 - rank].data(); }).find("take it from GpuBuffer"),
                std::string::npos);
    }
    communicator.bootstrap()->barrier();
  });
}

TEST(RegisteredMemory, WhatMakesNoSenseIsRefused) {
  const auto context = Context::create();
  GpuBuffer<char> buffer(100);
  const auto memory = context->registerMemory(buffer.data(), 100, Transport::CudaIpc);
  std::vector<char> bytes = memory.serialize();
  EXPECT_EQ(RegisteredMemory::deserialize(bytes).size(), 100U);
  bytes.pop_back();
  EXPECT_NE(errorOf([&] { RegisteredMemory::deserialize(bytes); }).find("no registered memory"),
            std::string::npos);
  EXPECT_NE(
      errorOf([&] { context->createEndpoint(Transport::Unknown); }).find("no transport Unknown"),
      std::string::npos);
}

TEST(Communicator, FuturesAreLookedAtInAnyOrder) {
  runRanks(2, [](Communicator& communicator) {
    const int peer = 1 - communicator.bootstrap()->getRank();
    std::vector<char> memory(30);
    for (int i = 1; i <= 3; ++i) {
      communicator.sendMemory(communicator.registerMemory(memory.data(), i, Transport::CudaIpc),
                              peer, 9);
    }
    auto first = communicator.recvMemory(peer, 9);
    auto second = communicator.recvMemory(peer, 9);
    auto connection = communicator.connect(Transport::CudaIpc, peer, 4);
    auto third = communicator.recvMemory(peer, 9);
    EXPECT_EQ(third.get().size(), 3U);
    EXPECT_EQ(communicator.remoteRankOf(connection.get()), peer);
    EXPECT_EQ(communicator.tagOf(connection.get()), 4);
    EXPECT_EQ(first.get().size(), 1U);
    EXPECT_EQ(second.get().size(), 2U);
    communicator.bootstrap()->barrier();
  });
}

}  // namespace
}  // namespace mscclpp::testing
