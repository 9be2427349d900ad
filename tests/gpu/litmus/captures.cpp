#include <functional>
#include <stdexcept>
#include <thread>

#include "tests/gpu/litmus/gpus.h"
#include "tests/gpu/litmus/groups.h"
#include "tests/gpu/litmus/harness.h"

namespace litmus {
namespace {

const char* const kModeNames[] = {"global", "thread_local", "relaxed"};

std::string shortName(Result result) {
  if (result == kSuccess) return "ok";
  const char* name = nullptr;
  Driver::get().getErrorName(result, &name);
  return std::to_string(result) + " " + (name ? name : "?");
}

Event newEvent(unsigned flags = kEventDisableTiming) {
  Event event = nullptr;
  check(Driver::get().eventCreate(&event, flags), "cuEventCreate");
  return event;
}

/// Work forked onto a second stream and not joined when the capture ends.
void unjoined(Gpu& gpu, CaptureMode mode, bool external) {
  const Driver& driver = Driver::get();
  const Stream user = gpu.stream(0), ours = gpu.stream(1);
  Event fork = newEvent(), done = newEvent();
  check(driver.streamBeginCapture(user, mode), "begin");
  check(driver.eventRecord(fork, user), "record");
  check(driver.streamWaitEvent(ours, fork, 0), "wait");
  const Result launch = gpu.launch("empty", 1, 32, 1);
  const Result record = external ? driver.eventRecordWithFlags(done, ours, kEventRecordExternal)
                                 : driver.eventRecord(done, ours);
  Graph graph = nullptr;
  const Result end = driver.streamEndCapture(user, &graph);
  CaptureStatus status{};
  const Result asked = driver.streamIsCapturing(ours, &status);
  const Result after = gpu.launch("empty", 1, 32, 1);
  const Result afterUser = gpu.launch("empty", 1, 32, 0);
  Row("capture", "async work that is never joined")
      .add("mode", kModeNames[static_cast<int>(mode)])
      .add("event", external ? "external" : "plain")
      .add("launch", shortName(launch))
      .add("record", shortName(record))
      .add("end_capture", shortName(end))
      .add("graph", graph ? "made" : "none")
      .add("forked_stream_after",
           asked == kSuccess ? std::to_string(static_cast<int>(status)) : shortName(asked))
      .add("launch_on_forked_after", shortName(after))
      .add("launch_on_user_after", shortName(afterUser))
      .add("sync_after", shortName(driver.streamSynchronize(ours)))
      .emit();
}

/// The capturing stream itself runs the operation, and an external event says when replays are
/// done.
void external(Gpu& gpu) {
  const Driver& driver = Driver::get();
  const Stream stream = gpu.stream(0);
  Event done = newEvent();
  check(driver.streamBeginCapture(stream, CaptureMode::Global), "begin");
  check(gpu.launch("delay", 1, 1, 0, uint64_t{3000000}), "delay");
  const Result record = driver.eventRecordWithFlags(done, stream, kEventRecordExternal);
  Graph graph = nullptr;
  const Result end = driver.streamEndCapture(stream, &graph);
  if (end != kSuccess) throw std::runtime_error("capturing an external event: " + shortName(end));
  GraphExec exec = nullptr;
  const Result made = driver.graphInstantiate(&exec, graph, 0);
  const Result before = driver.eventQuery(done);
  const Result launched = driver.graphLaunch(exec, stream);
  const Result during = driver.eventQuery(done);
  check(driver.streamSynchronize(stream), "sync");
  const Result after = driver.eventQuery(done);
  check(driver.graphLaunch(exec, stream), "second replay");
  const Result duringSecond = driver.eventQuery(done);
  check(driver.streamSynchronize(stream), "sync");
  Row("capture", "external event recorded by a graph")
      .add("record", shortName(record))
      .add("end_capture", shortName(end))
      .add("instantiate", shortName(made))
      .add("query_before_any_replay", shortName(before))
      .add("launch", shortName(launched))
      .add("query_during_replay", shortName(during))
      .add("query_after_replay", shortName(after))
      .add("query_during_second_replay", shortName(duringSecond))
      .emit();
}

/// What a call made while a stream captures returns, and whether the capture survives it.
void whileCapturing(Gpu& gpu, const std::string& cubin) {
  const Driver& driver = Driver::get();
  const Stream user = gpu.stream(0), other = gpu.stream(1);
  Event before = newEvent();
  Event timedA = newEvent(0), timedB = newEvent(0);
  check(driver.eventRecord(before, other), "record");
  check(driver.eventRecord(timedA, other), "record");
  check(driver.eventRecord(timedB, other), "record");
  check(driver.streamSynchronize(other), "sync");
  Event captured = nullptr;
  DevicePtr memory = 0;
  check(driver.memAlloc(&memory, 4096), "cuMemAlloc");

  const std::vector<std::pair<const char*, std::function<Result()>>> calls = {
      {"eventQuery(complete event)", [&] { return driver.eventQuery(before); }},
      {"eventQuery(event recorded in the capture)", [&] { return driver.eventQuery(captured); }},
      {"eventSynchronize(complete event)", [&] { return driver.eventSynchronize(before); }},
      {"eventElapsedTime(complete events)",
       [&] {
         float ms;
         return driver.eventElapsedTime(&ms, timedA, timedB);
       }},
      {"eventCreate + destroy",
       [&] {
         Event event = nullptr;
         Result result = driver.eventCreate(&event, kEventDisableTiming);
         return result == kSuccess ? driver.eventDestroy(event) : result;
       }},
      {"streamQuery(other stream)", [&] { return driver.streamQuery(other); }},
      {"streamQuery(capturing stream)", [&] { return driver.streamQuery(user); }},
      {"streamIsCapturing(capturing stream)",
       [&] {
         CaptureStatus status;
         return driver.streamIsCapturing(user, &status);
       }},
      {"streamSynchronize(other stream)", [&] { return driver.streamSynchronize(other); }},
      {"eventRecord(other stream)", [&] { return driver.eventRecord(before, other); }},
      {"launchKernel(other stream)", [&] { return gpu.launch("empty", 1, 32, 1); }},
      {"memcpyAsync(other stream)",
       [&] { return driver.memcpyAsync(memory, memory + 2048, 1024, other); }},
      {"memAlloc + free",
       [&] {
         DevicePtr p = 0;
         Result result = driver.memAlloc(&p, 4096);
         return result == kSuccess ? driver.memFree(p) : result;
       }},
      {"memHostAlloc + free",
       [&] {
         void* p = nullptr;
         Result result = driver.memHostAlloc(&p, 4096, 0);
         return result == kSuccess ? driver.memFreeHost(p) : result;
       }},
      {"moduleLoadData + unload",
       [&] {
         Module module = nullptr;
         Result result = driver.moduleLoadData(&module, cubin.data());
         return result == kSuccess ? driver.moduleUnload(module) : result;
       }},
      {"memCreate + map + release (VMM)",
       [&]() -> Result {
         try {
           DeviceMemory::allocate(gpu.index(), 4096);
         } catch (const std::exception&) {
           return -1;
         }
         return kSuccess;
       }},
  };

  for (const auto& [name, call] : calls) {
    for (bool sameThread : {false, true}) {
      for (bool exchange : {false, true}) {
        Row row("capture", "call while a stream captures");
        row.add("call", name).add("thread", sameThread ? "same" : "other");
        row.add("exchange_to_relaxed", exchange ? "yes" : "no");
        for (CaptureMode mode :
             {CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed}) {
          check(driver.streamBeginCapture(user, mode), "begin");
          check(gpu.launch("empty", 1, 32, 0), "launch");
          captured = newEvent();
          check(driver.eventRecord(captured, user), "record in capture");
          Result result = kSuccess;
          auto body = [&] {
            gpu.use();
            CaptureMode previous = CaptureMode::Relaxed;
            if (exchange) driver.threadExchangeStreamCaptureMode(&previous);
            result = call();
            if (exchange) driver.threadExchangeStreamCaptureMode(&previous);
          };
          if (sameThread) {
            body();
          } else {
            std::thread(body).join();
          }
          Graph graph = nullptr;
          const Result end = driver.streamEndCapture(user, &graph);
          if (graph) driver.graphDestroy(graph);
          driver.eventDestroy(captured);
          row.add(kModeNames[static_cast<int>(mode)],
                  shortName(result) +
                      (end == kSuccess ? " | capture survives" : " | capture: " + shortName(end)));
        }
        row.emit();
      }
    }
  }
}

}  // namespace

void captures(const std::string& kernels) {
  Gpus gpus(kernels, 1);
  gpus[0].use();
  for (const char* name : {"empty", "delay"}) gpus[0].function(name);
  for (CaptureMode mode : {CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed}) {
    unjoined(gpus[0], mode, false);
  }
  unjoined(gpus[0], CaptureMode::Global, true);
  external(gpus[0]);
  whileCapturing(gpus[0], gpus.cubin);
}

}  // namespace litmus
