#include <algorithm>
#include <functional>
#include <thread>

#include "tests/gpu/litmus/gpus.h"
#include "tests/gpu/litmus/groups.h"
#include "tests/gpu/litmus/harness.h"

namespace litmus {
namespace {

struct Large {
  char bytes[512];
};

/// Nanoseconds of CPU per call: batches small enough not to fill the driver's queue, each followed
/// by a synchronisation that is not timed. Median and lowest batch.
void cost(Gpu& gpu, const char* name, const std::function<Result()>& call, int batch = 64) {
  const Driver& driver = Driver::get();
  gpu.use();
  std::vector<double> nanos;
  Result worst = kSuccess;
  for (int repeat = 0; repeat < 40; ++repeat) {
    const double start = secondsNow();
    for (int i = 0; i < batch; ++i) {
      const Result result = call();
      if (result != kSuccess && result != kNotReady) worst = result;
    }
    nanos.push_back((secondsNow() - start) / batch * 1e9);
    for (int s = 0; s < 3; ++s) check(driver.streamSynchronize(gpu.stream(s)), "sync");
  }
  Row("cost", "CPU time of a call")
      .add("call", name)
      .add("median_ns", median(nanos))
      .add("lowest_ns", *std::min_element(nanos.begin(), nanos.end()))
      .add("result", worst == kSuccess ? "ok" : describe(worst))
      .emit();
}

GraphExec graphOf(Gpu& gpu, int nodes, const std::function<void()>& body) {
  const Driver& driver = Driver::get();
  gpu.use();
  check(driver.streamBeginCapture(gpu.stream(0), CaptureMode::ThreadLocal), "begin");
  for (int i = 0; i < nodes; ++i) body();
  Graph graph = nullptr;
  check(driver.streamEndCapture(gpu.stream(0), &graph), "end");
  GraphExec exec = nullptr;
  check(driver.graphInstantiate(&exec, graph, 0), "instantiate");
  return exec;
}

/// The same launch from one thread per GPU at once: does the driver serialise them?
void concurrentLaunches(Gpus& gpus) {
  std::vector<double> nanos(gpus.count());
  std::vector<std::thread> threads;
  for (int i = 0; i < gpus.count(); ++i) gpus[i].function("empty");
  for (int i = 0; i < gpus.count(); ++i) {
    threads.emplace_back([&, i] {
      const Driver& driver = Driver::get();
      gpus[i].use();
      Function kernel = gpus[i].function("empty");
      std::vector<double> batches;
      for (int repeat = 0; repeat < 200; ++repeat) {
        const double start = secondsNow();
        for (int k = 0; k < 64; ++k) {
          driver.launchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, gpus[i].stream(0), nullptr, nullptr);
        }
        batches.push_back((secondsNow() - start) / 64 * 1e9);
        driver.streamSynchronize(gpus[i].stream(0));
      }
      nanos[i] = median(batches);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Row("cost", "cuLaunchKernel from one thread per GPU at once")
      .add("gpus", gpus.count())
      .add("slowest_ns", *std::max_element(nanos.begin(), nanos.end()))
      .emit();
}

/// Launch, then spin on the event: what an eager caller sees end to end.
void endToEnd(Gpu& gpu) {
  const Driver& driver = Driver::get();
  gpu.use();
  Event event = nullptr;
  check(driver.eventCreate(&event, kEventDisableTiming), "cuEventCreate");
  std::vector<double> sync, query;
  for (int i = 0; i < 300; ++i) {
    double start = secondsNow();
    check(gpu.launch("empty", 1, 32, 0), "launch");
    check(driver.streamSynchronize(gpu.stream(0)), "sync");
    sync.push_back((secondsNow() - start) * 1e6);
    start = secondsNow();
    check(gpu.launch("empty", 1, 32, 0), "launch");
    check(driver.eventRecord(event, gpu.stream(0)), "record");
    while (driver.eventQuery(event) == kNotReady) {
    }
    query.push_back((secondsNow() - start) * 1e6);
  }
  Row("cost", "empty kernel end to end")
      .add("launch_and_synchronize_us", median(sync))
      .add("launch_record_query_us", median(query))
      .emit();
}

void graphNodes(Gpu& gpu) {
  const Driver& driver = Driver::get();
  GraphExec exec = graphOf(gpu, 200, [&] { check(gpu.launch("empty", 1, 32, 0), "launch"); });
  Event begin = nullptr, end = nullptr;
  check(driver.eventCreate(&begin, 0), "cuEventCreate");
  check(driver.eventCreate(&end, 0), "cuEventCreate");
  std::vector<double> micros;
  for (int i = 0; i < 20; ++i) {
    check(driver.eventRecord(begin, gpu.stream(0)), "record");
    check(driver.graphLaunch(exec, gpu.stream(0)), "cuGraphLaunch");
    check(driver.eventRecord(end, gpu.stream(0)), "record");
    check(driver.streamSynchronize(gpu.stream(0)), "sync");
    float ms = 0;
    check(driver.eventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
    micros.push_back(ms * 1e3 / 200);
  }
  Row("cost", "empty kernel as one of 200 graph nodes").add("us_per_node", median(micros)).emit();
}

}  // namespace

void callCosts(const std::string& kernels) {
  Gpus gpus(kernels);
  const Driver& driver = Driver::get();
  Gpu& gpu = gpus[0];
  const Stream a = gpu.stream(0), b = gpu.stream(1);
  gpu.use();
  Event done = nullptr, later = nullptr, timedA = nullptr, timedB = nullptr;
  for (Event* event : {&done, &later})
    check(driver.eventCreate(event, kEventDisableTiming), "create");
  for (Event* event : {&timedA, &timedB}) check(driver.eventCreate(event, 0), "create");
  for (Event event : {done, timedA, timedB}) check(driver.eventRecord(event, a), "record");
  check(driver.streamSynchronize(a), "sync");
  Function empty = gpu.function("empty");
  Function large = gpu.function("emptyLarge");
  Large argument{};
  void* largeParameters[] = {&argument};
  const DevicePtr mine = gpus.at(0, 0);
  const DevicePtr peer = gpus.at(gpus.count() - 1, 8 << 20);
  MappedHostMemory host(0, 1 << 16);

  cost(gpu, "cuLaunchKernel, no parameters",
       [&] { return driver.launchKernel(empty, 1, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr); });
  cost(gpu, "cuLaunchKernel, 512 bytes of parameters", [&] {
    return driver.launchKernel(large, 1, 1, 1, 32, 1, 1, 0, a, largeParameters, nullptr);
  });
  LaunchConfig config;
  config.blockX = 32;
  config.stream = a;
  cost(gpu, "cuLaunchKernelEx, 512 bytes of parameters",
       [&] { return driver.launchKernelEx(&config, large, largeParameters, nullptr); });
  cost(gpu, "cuEventRecord", [&] { return driver.eventRecord(later, a); });
  cost(gpu, "cuEventRecord, timed event", [&] { return driver.eventRecord(timedA, a); });
  check(driver.eventRecord(timedA, a), "record");
  check(driver.eventRecord(timedB, a), "record");
  check(driver.streamSynchronize(a), "sync");
  cost(gpu, "cuEventRecordWithFlags", [&] { return driver.eventRecordWithFlags(later, a, 0); });
  cost(gpu, "cuStreamWaitEvent, complete event",
       [&] { return driver.streamWaitEvent(b, done, 0); });
  cost(gpu, "fork and join: record, wait, record, wait", [&] {
    driver.eventRecord(done, a);
    driver.streamWaitEvent(b, done, 0);
    driver.eventRecord(later, b);
    return driver.streamWaitEvent(a, later, 0);
  });
  cost(gpu, "fork, launch, join", [&] {
    driver.eventRecord(done, a);
    driver.streamWaitEvent(b, done, 0);
    driver.launchKernel(empty, 1, 1, 1, 32, 1, 1, 0, b, nullptr, nullptr);
    driver.eventRecord(later, b);
    return driver.streamWaitEvent(a, later, 0);
  });
  check(driver.eventRecord(done, a), "record");
  check(driver.streamSynchronize(a), "sync");
  cost(gpu, "cuEventQuery, complete", [&] { return driver.eventQuery(done); });
  for (int s : {0}) {
    check(gpu.launch("delay", 1, 1, s, uint64_t{100000000}), "delay");
    check(driver.eventRecord(later, gpu.stream(s)), "record");
    std::vector<double> nanos;
    for (int repeat = 0; repeat < 40; ++repeat) {
      const double start = secondsNow();
      for (int i = 0; i < 64; ++i) driver.eventQuery(later);
      nanos.push_back((secondsNow() - start) / 64 * 1e9);
    }
    Row("cost", "CPU time of a call")
        .add("call", "cuEventQuery, not ready")
        .add("median_ns", median(nanos))
        .add("last_result", driver.eventQuery(later))
        .emit();
    check(driver.streamSynchronize(gpu.stream(s)), "sync");
  }
  cost(gpu, "cuStreamQuery, idle", [&] { return driver.streamQuery(a); });
  cost(gpu, "cuStreamSynchronize, idle", [&] { return driver.streamSynchronize(a); });
  CaptureStatus status{};
  cost(gpu, "cuStreamIsCapturing", [&] { return driver.streamIsCapturing(a, &status); });
  uint64_t id = 0;
  cost(gpu, "cuStreamGetCaptureInfo",
       [&] { return driver.streamGetCaptureInfo(a, &status, &id, nullptr, nullptr, nullptr); });
  CaptureMode mode = CaptureMode::Relaxed;
  cost(gpu, "cuThreadExchangeStreamCaptureMode, twice", [&] {
    driver.threadExchangeStreamCaptureMode(&mode);
    return driver.threadExchangeStreamCaptureMode(&mode);
  });
  Context context = nullptr;
  cost(gpu, "cuCtxGetCurrent", [&] { return driver.ctxGetCurrent(&context); });
  cost(gpu, "cuCtxSetCurrent, same", [&] { return driver.ctxSetCurrent(context); });
  cost(gpu, "DeviceGuard of the current device", [&] {
    DeviceGuard guard(0);
    return kSuccess;
  });
  cost(gpu, "cuPointerGetAttribute(range start)", [&] {
    DevicePtr start = 0;
    return driver.pointerGetAttribute(&start, PointerAttribute{11}, mine);
  });
  for (size_t bytes : {size_t{8} << 10, size_t{1} << 20}) {
    const std::string size = std::to_string(bytes >> 10) + " KB";
    cost(gpu, ("cuMemcpyAsync, local, " + size).c_str(),
         [&] { return driver.memcpyAsync(mine, mine + (4 << 20), bytes, a); });
    cost(gpu, ("cuMemcpyAsync, to a peer, " + size).c_str(),
         [&] { return driver.memcpyAsync(peer, mine, bytes, a); });
  }
  cost(gpu, "cuMemcpyDtoHAsync, pinned, 8 KB",
       [&] { return driver.memcpyDtoHAsync(host.host(), mine, 8 << 10, a); });
  cost(gpu, "cuMemsetD32Async, 8 KB", [&] { return driver.memsetD32Async(mine, 0, 2048, a); });
  cost(gpu, "cuLaunchHostFunc", [&] {
    return driver.launchHostFunc(
        a, [](void*) {}, nullptr);
  });
  cost(gpu, "cuEventCreate + cuEventDestroy", [&] {
    Event event = nullptr;
    driver.eventCreate(&event, kEventDisableTiming);
    return driver.eventDestroy(event);
  });
  GraphExec one = graphOf(gpu, 1, [&] { check(gpu.launch("empty", 1, 32, 0), "launch"); });
  cost(
      gpu, "cuGraphLaunch, 1 kernel", [&] { return driver.graphLaunch(one, a); }, 16);
  GraphExec many = graphOf(gpu, 100, [&] { check(gpu.launch("empty", 1, 32, 0), "launch"); });
  cost(
      gpu, "cuGraphLaunch, 100 kernels", [&] { return driver.graphLaunch(many, a); }, 4);
  endToEnd(gpu);
  graphNodes(gpu);
  concurrentLaunches(gpus);
}

}  // namespace litmus
