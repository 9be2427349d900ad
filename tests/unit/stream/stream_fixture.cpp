#include "tests/unit/stream/stream_fixture.h"

#include <algorithm>
#include <thread>

#include "ctran/gpu/discard.h"
#include "ctran/gpu/driver.h"

namespace ctran::testing {

void Gate::put(gpu::Stream stream) {
  const auto pass = [](void* given) {  // one at a time: the gate is on one stream
    auto& passes = *static_cast<std::atomic<int>*>(given);
    while (passes == 0) std::this_thread::yield();
    --passes;
  };
  gpu::check(gpu::Driver::get().launchHostFunc(stream, pass, &passes_), "cuLaunchHostFunc");
}

void Observer::failed(const std::string& op, const std::exception_ptr&, bool reachable) {
  const std::lock_guard lock(mutex_);
  told_.push_back(op + (reachable ? " failed" : " failed unseen"));
}

void Observer::dropped(const std::string& op, const std::exception_ptr&) {
  const std::lock_guard lock(mutex_);
  told_.push_back(op + " dropped");
}

std::vector<std::string> Observer::told() {
  const std::lock_guard lock(mutex_);
  return told_;
}

bool Queue::inspect() {
  retireEnded();
  if (const auto late = findLate(Clock::now())) {
    breakWith(Error(ErrorKind::Timeout, describe(late->name()) + " is late"));
  }
  return isIdle();
}

void Queue::endKernels() {
  ++endings;
  callOnBreak();
}

void StreamTest::SetUp() {
  gpu::deferDiscarding([this] {
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& one) {
      const auto queue = one.lock();
      return !queue || queue->isIdle();
    });
  });
}

void StreamTest::TearDown() {
  gate.open();
  gpu::check(gpu::Driver::get().ctxSynchronize(), "cuCtxSynchronize");
  for (const auto& one : queues_) {
    if (const auto queue = one.lock()) queue->inspect();
  }
  gpu::freeDiscarded();
  gpu::deferDiscarding(nullptr);
}

std::shared_ptr<Queue> StreamTest::makeQueue(const StreamQueueOptions& options) {
  auto made = std::make_shared<Queue>(options);
  queues_.push_back(made);
  return made;
}

StreamQueueOptions StreamTest::options() {
  return {.runtime = runtime,
          .name = "test",
          .rank = 1,
          .size = 4,
          .checkInterval = Milliseconds(1),
          .idleInterval = Milliseconds(10),
          .observer = observer};
}

std::shared_ptr<StreamOperation> StreamTest::enqueue(Queue& queue, bool aside, Milliseconds timeout,
                                                     const std::shared_ptr<void>& buffer) {
  const auto placement = queue.place(first.get(), aside);
  gate.put(placement.stream);
  return queue.track(placement,
                     {.name = "all_reduce", .sequence = queue.nextSequence(), .timeout = timeout},
                     [&] { return buffer; });
}

gpu::Graph StreamTest::capture(const std::function<void()>& body) {
  const gpu::Driver& driver = gpu::Driver::get();
  gpu::check(driver.streamBeginCapture(first.get(), gpu::CaptureMode::Global),
             "cuStreamBeginCapture");
  body();
  gpu::Graph graph = nullptr;
  gpu::check(driver.streamEndCapture(first.get(), &graph), "cuStreamEndCapture");
  return graph;
}

void StreamTest::synchronize(gpu::Stream stream) {
  gpu::check(gpu::Driver::get().streamSynchronize(stream), "cuStreamSynchronize");
}

}  // namespace ctran::testing
