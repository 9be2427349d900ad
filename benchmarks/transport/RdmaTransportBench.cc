// RdmaTransportBench: times RdmaTransport between two ends of one process, with Google Benchmark.
//
//   CTRAN_VERBS_LIBRARY=... RdmaTransportBench --benchmark_filter=Write
//
// Without a GPU the memory is the host's. Each end has a thread of its own.

#include <benchmark/benchmark.h>
#include <comms/torchcomms/transport/RdmaTransport.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace {

using namespace torch::comms;

constexpr int kWindow = 32;  // writes under way, for bandwidth

struct End {
  explicit End(size_t bytes)
      : buffer(bytes), memory(buffer.data(), bytes), transport(-1, thread.getEventBase()) {}
  std::vector<char> buffer;
  RdmaMemory memory;
  ScopedEventBaseThread thread;
  RdmaTransport transport;
};

struct Pair {
  explicit Pair(size_t bytes) : a(bytes), b(bytes), remote(b.memory.toRemoteBuffer()) {
    good = a.transport.connect(b.transport.bind()) == commSuccess &&
           b.transport.connect(a.transport.bind()) == commSuccess;
  }
  End a, b;
  RdmaRemoteBuffer remote;
  bool good;
};

/// `transfer` moves state.range(0) bytes between the ends, `per` times.
template <typename Transfer>
void run(benchmark::State& state, int per, const Transfer& transfer) {
  const auto bytes = static_cast<size_t>(state.range(0));
  Pair pair(bytes);
  for (auto _ : state) {
    if (!pair.good || !transfer(pair)) {
      state.SkipWithError("a transfer has failed");
      return;
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * per *
                          static_cast<int64_t>(bytes));
}

bool allGood(std::vector<RdmaFuture> futures) {
  const std::vector<commResult_t> results = collectAll(std::move(futures)).get();
  return std::all_of(results.begin(), results.end(),
                     [](commResult_t each) { return each == commSuccess; });
}

void BM_RdmaTransport_Write(benchmark::State& state) {
  run(state, 1, [](Pair& pair) {
    return pair.a.transport.write(pair.a.memory.createView(), pair.remote, false).get() ==
           commSuccess;
  });
}

void BM_RdmaTransport_Read(benchmark::State& state) {
  run(state, 1, [](Pair& pair) {
    return pair.a.transport.read(pair.a.memory.createMutableView(), pair.remote).get() ==
           commSuccess;
  });
}

void BM_RdmaTransport_WriteWithNotify(benchmark::State& state) {
  run(state, 1, [](Pair& pair) {
    const RdmaFuture written =
        pair.a.transport.write(pair.a.memory.createView(), pair.remote, true);
    return pair.b.transport.waitForWrite().get() == commSuccess && written.get() == commSuccess;
  });
}

void BM_RdmaTransport_WriteBatch(benchmark::State& state) {
  run(state, kWindow, [](Pair& pair) {
    std::vector<RdmaFuture> futures;
    for (int i = 0; i < kWindow; ++i) {
      futures.push_back(pair.a.transport.write(pair.a.memory.createView(), pair.remote, false));
    }
    return allGood(std::move(futures));
  });
}

void BM_RdmaMemory_Register(benchmark::State& state) {
  std::vector<char> buffer(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    RdmaMemory memory(buffer.data(), buffer.size());
    benchmark::DoNotOptimize(memory);
  }
}

void sizes(benchmark::internal::Benchmark* each) {
  each->RangeMultiplier(8)->Range(8, 16 << 20)->UseRealTime();
}

BENCHMARK(BM_RdmaTransport_Write)->Apply(sizes);
BENCHMARK(BM_RdmaTransport_Read)->Apply(sizes);
BENCHMARK(BM_RdmaTransport_WriteWithNotify)->Apply(sizes);
BENCHMARK(BM_RdmaTransport_WriteBatch)->Apply(sizes);
BENCHMARK(BM_RdmaMemory_Register)->Apply(sizes);

}  // namespace

int main(int argc, char** argv) {
  if (!RdmaTransport::supported()) {
    std::fprintf(stderr, "RdmaTransportBench: this machine has no RDMA device that can be used\n");
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
