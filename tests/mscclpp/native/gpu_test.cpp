// The host's side of channels for GPUs, on the stand-in for the driver: its device memory is a file
// that other processes map, so that kernels of the host run on it.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "ctran/gpu.h"
#include "ctran/gpu/driver.h"
#include "mscclpp/algorithm.hpp"
#include "mscclpp/c_api.h"
#include "mscclpp/gpu_utils.hpp"
#include "mscclpp/switch_channel.hpp"
#include "tests/mscclpp/native/ranks.h"
#include "tests/unit/support/stand_ins.h"

namespace mscclpp::testing {
namespace {

constexpr int kTimes = 10;

/// Ranks as those of other tests, with the stand-in.
void runGpuRanks(int size, const std::function<void(Communicator&)>& body) {
  if (kThreadSanitizer) GTEST_SKIP() << "the stand-in has one GPU for each process";
  runRanks(size, [&](Communicator& communicator) {
    ctran::testing::standInRuntime();
    body(communicator);
  });
}

EndpointConfig onGpu() { return {Transport::CudaIpc, Device(DeviceType::GPU)}; }

Connection connectGpu(Communicator& communicator, int peer) {
  return communicator.connect(onGpu(), peer).get();
}

/// Memory of the GPU, which the host sees as well here.
std::shared_ptr<void> memoryOfGpu(size_t bytes) {
  return detail::allocateMappable(bytes, DeviceType::GPU);
}

/// What cudaMalloc gives.
std::shared_ptr<char> plainMemoryOfGpu(size_t bytes) {
  const ctran::gpu::DeviceGuard guard(0);
  ctran::gpu::DevicePtr address = 0;
  ctran::gpu::check(ctran::gpu::Driver::get().memAlloc(&address, bytes), "cuMemAlloc");
  return {reinterpret_cast<char*>(address), [](char* memory) {
            ctran::gpu::Driver::get().memFree(reinterpret_cast<ctran::gpu::DevicePtr>(memory));
          }};
}

TEST(MemoryOfGpus, IsMappedByOthersAtAnyOffset) {
  runGpuRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    const std::shared_ptr<void> segment = memoryOfGpu(4096);
    const std::shared_ptr<char> plain = plainMemoryOfGpu(4096);
    for (char* const memory : {static_cast<char*>(segment.get()), plain.get()}) {
      EXPECT_EQ(ctran::api::gpuAllocationOf(memory).device, 0);
      for (int i = 0; i < 4096; ++i) memory[i] = static_cast<char>(pattern(rank, i, 0));
      const auto part = exchange(
          communicator, communicator.registerMemory(memory + 12, 1000, Transport::CudaIpc));
      const auto* const theirs = static_cast<const char*>(part[1 - rank].data());
      for (int i = 0; i < 1000; ++i) {
        ASSERT_EQ(theirs[i], static_cast<char>(pattern(1 - rank, i + 12, 0)));
      }
      communicator.bootstrap()->barrier();
    }
  });
}

TEST(MemoryOfGpus, StartsAsZeros) {
  runGpuRanks(1, [](Communicator&) {
    for (int turn = 0; turn < 3; ++turn) {
      const auto local = detail::allocateLocal(300, DeviceType::GPU);
      auto* const bytes = static_cast<char*>(local.get());
      EXPECT_EQ(ctran::api::gpuAllocationOf(bytes).device, 0);
      for (int i = 0; i < 300; ++i) ASSERT_EQ(bytes[i], 0);
      std::fill_n(bytes, 300, char{1});
    }
  });
}

TEST(MemoryOfGpus, ThatIsGoneIsAnError) {
  runGpuRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    std::vector<char> name;
    {
      const auto memory = memoryOfGpu(100);
      name = communicator.registerMemory(memory.get(), 100, Transport::CudaIpc).serialize();
    }
    communicator.bootstrap()->send(name, 1 - rank, 3);
    communicator.bootstrap()->recv(name, 1 - rank, 3);
    const std::string error = errorOf([&] { RegisteredMemory::deserialize(name); });
    EXPECT_NE(error.find("on GPU 0 cannot be mapped"), std::string::npos) << error;
    communicator.bootstrap()->barrier();
  });
}

TEST(MemoryOfGpus, BeyondItsAllocationIsRefused) {
  runGpuRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    const auto memory = memoryOfGpu(4096);
    const std::shared_ptr<char> plain = plainMemoryOfGpu(4096);
    for (void* const own : {memory.get(), static_cast<void*>(plain.get())}) {
      ctran::api::GpuMemoryName name = ctran::api::shareGpuMemory(own, 4096).name;
      communicator.bootstrap()->send(name.data(), sizeof name, 1 - rank, 3);
      communicator.bootstrap()->recv(name.data(), sizeof name, 1 - rank, 3);
      EXPECT_NE(ctran::api::openGpuMemory(name, 4096, 0), nullptr);
      EXPECT_NE(errorOf([&] { ctran::api::openGpuMemory(name, 8192, 0); }).find("not the name of"),
                std::string::npos);
      // Whatever the bytes say, no memory is reached that is not the allocation's.
      for (size_t i = 0; i < sizeof name; ++i) {
        ctran::api::GpuMemoryName wrong = name;
        wrong[i] ^= std::byte{0x80};
        try {
          const auto opened = ctran::api::openGpuMemory(wrong, 4096, 0);
          static_cast<volatile char*>(opened.get())[4095];
        } catch (const std::exception&) {
        }
      }
      communicator.bootstrap()->barrier();
    }
  });
}

/// All-gather of `bytes` per rank: block b to the peer of channel b.
void gatherBlocks(DeviceHandle<MemoryChannel>* handles, int rank, size_t bytes) {
  auto& channel = handles[blockIdx.x];
  if (threadIdx.x == 0) {
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

TEST(MemoryChannelOfGpus, GathersThroughMemoryOfGpus) {
  runGpuRanks(3, [](Communicator& communicator) {
    constexpr size_t kBytes = 5003;
    const int rank = communicator.bootstrap()->getRank();
    const auto memory = memoryOfGpu(3 * kBytes);
    auto* const data = static_cast<char*>(memory.get());
    const auto own = communicator.registerMemory(data, 3 * kBytes, Transport::CudaIpc);
    const auto all = exchange(communicator, own);
    std::vector<MemoryChannel> channels;
    std::vector<DeviceHandle<MemoryChannel>> handles;
    for (int r = 0; r < 3; ++r) {
      if (r == rank) continue;
      channels.emplace_back(
          std::make_shared<MemoryDevice2DeviceSemaphore>(communicator, connectGpu(communicator, r)),
          all[r], own);
      handles.push_back(channels.back().deviceHandle());
      const auto& semaphore = handles.back().semaphore_;
      for (const void* word :
           {semaphore.inboundToken, semaphore.remoteInboundToken, semaphore.expectedInboundToken}) {
        EXPECT_EQ(ctran::api::gpuAllocationOf(word).device, 0);
      }
    }
    for (int round = 0; round < kTimes; ++round) {
      for (size_t i = 0; i < kBytes; ++i) {
        data[rank * kBytes + i] = static_cast<char>(pattern(rank, i, round));
      }
      host::launch(2, 16, 0, [&] { gatherBlocks(handles.data(), rank, kBytes); });
      for (int r = 0; r < 3; ++r) {
        for (size_t i = 0; i < kBytes; ++i) {
          ASSERT_EQ(data[r * kBytes + i], static_cast<char>(pattern(r, i, round)));
        }
      }
      communicator.bootstrap()->barrier();
    }
    communicator.checkWaits();
  });
}

TEST(PortChannelOfGpus, CopiesOnAStreamAndSignalsBehindThem) {
  runGpuRanks(3, [](Communicator& communicator) {
    constexpr size_t kBytes = 70'001;
    const int rank = communicator.bootstrap()->getRank();
    // As torch has it: what cudaMalloc gives.
    const std::shared_ptr<char> input = plainMemoryOfGpu(kBytes);
    const std::shared_ptr<char> output = plainMemoryOfGpu(3 * kBytes);
    ProxyService service(4, DeviceType::GPU);
    const auto outputs = exchange(
        communicator, communicator.registerMemory(output.get(), 3 * kBytes, Transport::CudaIpc));
    const MemoryId source =
        service.addMemory(communicator.registerMemory(input.get(), kBytes, Transport::CudaIpc));
    std::vector<DeviceHandle<PortChannel>> handles;
    for (int r = 0; r < 3; ++r) {
      if (r == rank) continue;
      const SemaphoreId semaphore =
          service.buildAndAddSemaphore(communicator, connectGpu(communicator, r));
      handles.push_back(
          service.portChannel(semaphore, service.addMemory(outputs[r]), source).deviceHandle());
    }
    EXPECT_EQ(ctran::api::gpuAllocationOf(handles[0].fifo_.head).device, 0);
    EXPECT_EQ(ctran::api::gpuAllocationOf(handles[0].fifo_.slots).device, -1);
    service.startProxy();
    for (int round = 0; round < kTimes; ++round) {
      for (size_t i = 0; i < kBytes; ++i) {
        input.get()[i] = output.get()[rank * kBytes + i] =
            static_cast<char>(pattern(rank, i, round));
      }
      host::launch(1, 4, 0, [&] { gatherByProxy(handles.data(), 2, rank, kBytes); });
      for (int r = 0; r < 3; ++r) {
        for (size_t i = 0; i < kBytes; ++i) {
          ASSERT_EQ(output.get()[r * kBytes + i], static_cast<char>(pattern(r, i, round)));
        }
      }
      communicator.bootstrap()->barrier();
    }
    service.stopProxy();
  });
}

TEST(PortChannelOfGpus, MoreSignalsThanWordsToCopyThemFrom) {
  runGpuRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    Host2DeviceSemaphore semaphore(communicator, connectGpu(communicator, 1 - rank));
    auto handle = semaphore.deviceHandle();
    for (int i = 0; i < 1200; ++i) semaphore.signal();
    host::launch(1, 1, 0, [&] {
      for (int i = 0; i < 1200; ++i) handle.wait();
      EXPECT_FALSE(handle.poll());
    });
    communicator.bootstrap()->barrier();
  });
}

TEST(SwitchChannelOfGpus, ReducesFromAllAndStoresToAll) {
  runGpuRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    const auto memory = memoryOfGpu(4096);
    auto* const data = static_cast<float*>(memory.get());
    for (int i = 0; i < 1024; ++i) data[i] = static_cast<float>(rank * 1000 + i);
    const std::shared_ptr<Communicator> shared(&communicator, [](Communicator*) {});
    const auto connection = connectNvlsCollective(shared, {0, 1}, 4096);
    const SwitchChannel channel =
        connection->bindAllocatedMemory(reinterpret_cast<CUdeviceptr>(data), 4096);
    const auto handle = channel.deviceHandle();
    communicator.bootstrap()->barrier();
    for (int i = rank * 512; i < rank * 512 + 512; ++i) {
      handle.broadcast(i, handle.reduce<float>(i));
    }
    communicator.bootstrap()->barrier();
    for (int i = 0; i < 1024; ++i) ASSERT_EQ(data[i], static_cast<float>(1000 + 2 * i));
  });
}

TEST(WaitOfGpus, InVainIsToldByRank) {
  runGpuRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    MemoryDevice2DeviceSemaphore semaphore(communicator, connectGpu(communicator, 1 - rank));
    communicator.checkWaits();
    semaphore.deviceHandle().limit->failed = 1;  // as a kernel does
    const std::string error = errorOf([&] { communicator.checkWaits(); });
    EXPECT_NE(error.find("waited for rank " + std::to_string(1 - rank)), std::string::npos)
        << error;
    communicator.bootstrap()->barrier();
  });
}

TEST(WaitOfGpus, ForAProxyThatFailedIsTold) {
  runGpuRanks(2, [](Communicator& communicator) {
    const int rank = communicator.bootstrap()->getRank();
    const auto memory = memoryOfGpu(100);
    const auto own = communicator.registerMemory(memory.get(), 100, Transport::CudaIpc);
    const auto there = exchange(communicator, own)[1 - rank];
    ProxyService service(8, DeviceType::GPU);
    const SemaphoreId id =
        service.buildAndAddSemaphore(communicator, connectGpu(communicator, 1 - rank));
    auto handle =
        service.portChannel(id, service.addMemory(there), service.addMemory(own)).deviceHandle();
    service.startProxy();
    errorOf([&] { host::launch(1, 1, 0, [&] { handle.putWithSignalAndFlush(50, 0, 51); }); });
    const std::string error = errorOf([&] { communicator.checkWaits(); });
    EXPECT_NE(error.find("in vain for its proxy, which sends to rank"), std::string::npos) << error;
    const std::string why = errorOf([&] { service.stopProxy(); });
    EXPECT_NE(why.find("bytes 50 to 101 of the destination, which has 100"), std::string::npos)
        << why;
    communicator.bootstrap()->barrier();
  });
}

/// Until a wait of a kernel would end.
uint32_t awaitEnd(const WaitLimit& limit) {
  const auto giveUp = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  uint32_t end = 0;
  while ((end = __atomic_load_n(&limit.failed, __ATOMIC_ACQUIRE)) == 0 &&
         std::chrono::steady_clock::now() < giveUp) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return end;
}

TEST(WaitsOfGpus, EndWithTheAbortOfAnyRank) {
  static constexpr int kRanks = 3;
  runGpuRanks(kRanks, [](Communicator& whole) {
    const int rank = whole.bootstrap()->getRank();
    std::array<UniqueId, kRanks> ids{};
    if (rank == 0) ids[0] = TcpBootstrap::createUniqueId();
    whole.bootstrap()->allGather(ids.data(), sizeof(UniqueId));
    const auto bootstrap = std::make_shared<TcpBootstrap>(rank, kRanks);
    bootstrap->initialize(ids[0]);
    Communicator communicator(bootstrap);
    if (rank == 2) {
      bootstrap->barrier();
      bootstrap->engine()->abort("enough");
      return;
    }
    const Semaphore semaphore =
        communicator.buildSemaphore(connectGpu(communicator, 1 - rank), 1 - rank).get();
    communicator.checkWaits();
    bootstrap->barrier();
    EXPECT_EQ(awaitEnd(*semaphore.limit()), static_cast<uint32_t>(WaitEnd::Aborted));
    const std::string error = errorOf([&] { communicator.checkWaits(); });
    EXPECT_TRUE(has(
        error, "waited for rank " + std::to_string(1 - rank) + ", when a rank had called abort"))
        << error;
  });
}

/// An algorithm that counts the contexts that are made for it.
std::shared_ptr<Algorithm> counting(int& contexts, DeviceType kernels) {
  return std::make_shared<NativeAlgorithm>(
      "counting", "allreduce", nullptr,
      [](const std::shared_ptr<void>&, const void*, void*, size_t, size_t, DataType, ReduceOp,
         cudaStream_t, int, int, const Extras&) { return CommResult::CommSuccess; },
      [&contexts](std::shared_ptr<Communicator>, const void*, void*, size_t, size_t, DataType) {
        ++contexts;
        return std::make_shared<int>(1);
      },
      [](const void* input, void* output, size_t inputSize, size_t outputSize, DataType, bool) {
        return AlgorithmCtxKey{const_cast<void*>(input), output, inputSize, outputSize, 0};
      },
      0, 1 << 20, CollectiveBufferMode::Any, std::unordered_map<std::string, uint64_t>{},
      Algorithm::Constraint{}, kernels);
}

void executeOn(Algorithm& algorithm, const std::shared_ptr<Communicator>& communicator,
               void* memory) {
  algorithm.execute(communicator, memory, memory, 64, 64, DataType::FLOAT32, ReduceOp::SUM, nullptr,
                    nullptr);
}

TEST(NativeAlgorithmOfGpus, MemoryThatIsAllocatedAnewGetsANewContext) {
  runGpuRanks(1, [](Communicator& communicator) {
    int contexts = 0;
    const auto algorithm = counting(contexts, DeviceType::GPU);
    const auto shared = borrowed(communicator);
    std::shared_ptr<char> memory = plainMemoryOfGpu(16 << 20);
    for (int i = 0; i < 3; ++i) executeOn(*algorithm, shared, memory.get());
    EXPECT_EQ(contexts, 1);
    void* const before = memory.get();
    memory.reset();
    memory = plainMemoryOfGpu(16 << 20);
    if (memory.get() != before) GTEST_SKIP() << "it got another address";
    executeOn(*algorithm, shared, memory.get());
    EXPECT_EQ(contexts, 2);
  });
}

TEST(NativeAlgorithmOfGpus, MemoryThatItsKernelsDoNotReachIsRefused) {
  runGpuRanks(1, [](Communicator& communicator) {
    int contexts = 0;
    const auto shared = borrowed(communicator);
    std::vector<char> ofHost(64);
    const std::shared_ptr<char> ofGpu = plainMemoryOfGpu(64);
    EXPECT_NE(errorOf([&] {
                executeOn(*counting(contexts, DeviceType::GPU), shared, ofHost.data());
              }).find("in memory of the host, but it was compiled for GPUs"),
              std::string::npos);
    EXPECT_NE(errorOf([&] {
                executeOn(*counting(contexts, DeviceType::CPU), shared, ofGpu.get());
              }).find("in memory of a GPU, but it was compiled for the host"),
              std::string::npos);
    EXPECT_EQ(contexts, 0);
  });
}

/// An all-gather that copies into the outputs of all ranks; of 4 bytes it fails on rank 1.
std::shared_ptr<Algorithm> copying() {
  struct Context {
    std::shared_ptr<Communicator> communicator;
    std::vector<RegisteredMemory> outputs;
  };
  return std::make_shared<NativeAlgorithm>(
      "copying", "allgather", nullptr,
      [](const std::shared_ptr<void>& given, const void* input, void*, size_t bytes, size_t,
         DataType, ReduceOp, cudaStream_t, int, int, const Extras&) {
        const auto& context = *static_cast<Context*>(given.get());
        const auto bootstrap = context.communicator->bootstrap();
        const auto rank = static_cast<size_t>(bootstrap->getRank());
        if (bytes == 4 && rank == 1) return CommResult::CommInternalError;
        for (const RegisteredMemory& output : context.outputs) {
          std::memcpy(static_cast<char*>(output.data()) + rank * bytes, input, bytes);
        }
        bootstrap->barrier();
        return CommResult::CommSuccess;
      },
      [](const std::shared_ptr<Communicator>& communicator, const void*, void* output, size_t,
         size_t bytes, DataType) -> std::shared_ptr<void> {
        const RegisteredMemory own =
            communicator->registerMemory(output, bytes, Transport::CudaIpc);
        return std::make_shared<Context>(Context{communicator, exchange(*communicator, own)});
      },
      [](const void* input, void* output, size_t inputSize, size_t outputSize, DataType, bool) {
        return AlgorithmCtxKey{const_cast<void*>(input), output, inputSize, outputSize, 0};
      },
      0, 1 << 20, CollectiveBufferMode::OutOfPlace, std::unordered_map<std::string, uint64_t>{},
      Algorithm::Constraint{}, DeviceType::GPU);
}

TEST(RegisteredAlgorithm, ServesCallsOnGpus) {
  runGpuRanks(2, [](Communicator& communicator) {
    ctran::testing::useStandInCompiler();
    const auto& engine = dynamic_cast<TcpBootstrap&>(*communicator.bootstrap()).engine();
    const auto rank = static_cast<size_t>(engine->rank());
    const auto gpus = engine->splitForGpus("gpus");
    auto made = copying();
    mscclpp_algorithm* const algorithm = mscclpp_algorithm_share(&made);
    const int64_t number = mscclpp_algorithm_register(algorithm, "gpus", 1, 0, 0);
    ASSERT_GT(number, 0) << mscclpp_last_error();
    mscclpp_algorithm_free(algorithm);
    const ctran::api::OwnGpuStream stream(0);
    const std::shared_ptr<char> memory = plainMemoryOfGpu(4096);
    ctran::api::Call call;
    call.kind = ctran::CollectiveKind::AllGather;
    call.output = memory.get();
    const auto gather = [&](size_t count, bool inPlace) {
      call.count = count;
      call.input = memory.get() + (inPlace ? rank * count : 2048);
      std::memset(const_cast<void*>(call.input), static_cast<int>(rank + 1), count);
      gpus->enqueue(call, stream.get())->wait();
    };
    EXPECT_EQ(gpus->explain(call.kind, 100, call.type).algorithm, "plan:copying");
    for (const bool inPlace : {false, true, false}) {
      gather(300, inPlace);
      for (int i = 0; i < 600; ++i) ASSERT_EQ(memory.get()[i], i / 300 + 1);
    }
    const std::string error = errorOf([&] { gather(4, false); });
    EXPECT_TRUE(has(error, "the algorithm 'copying' failed on rank 1: it returned 3")) << error;
    EXPECT_TRUE(gpus->isAborted());
    EXPECT_EQ(mscclpp_algorithm_unregister(number), 0);
  });
}

}  // namespace
}  // namespace mscclpp::testing
