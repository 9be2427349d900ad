// Queues of operations on the streams of the stand-in for a GPU's driver.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ctran/gpu/runtime.h"
#include "ctran/stream/stream_queue.h"
#include "tests/unit/support/stand_ins.h"

namespace ctran::testing {

/// Work on a stream that does not end before the gate lets it pass.
class Gate {
 public:
  void put(gpu::Stream stream);
  void letOnePass() { ++passes_; }
  void open() { passes_ = 1 << 20; }

 private:
  std::atomic<int> passes_{0};
};

/// Writes down what it is told.
class Observer final : public ErrorObserver {
 public:
  void seen() override { ++seenErrors; }
  void broken() override { ++broke; }
  void failed(const std::string& op, const std::exception_ptr&, bool reachable) override;
  void dropped(const std::string& op, const std::exception_ptr&) override;

  std::vector<std::string> told();

  std::atomic<int> seenErrors{0};
  std::atomic<int> broke{0};

 private:
  std::mutex mutex_;
  std::vector<std::string> told_;
};

/// A queue of whatever the tests put on streams.
class Queue final : public StreamQueue, public std::enable_shared_from_this<Queue> {
 public:
  explicit Queue(StreamQueueOptions options) : StreamQueue(std::move(options)) {}

  std::shared_ptr<StreamQueue> share() override { return shared_from_this(); }
  bool inspect() override;

  std::atomic<int> endings{0};  ///< calls of endKernels
  std::atomic<int> awaited{0};  ///< waits until others have been told
  std::optional<std::string_view> inReplay;

 private:
  void endKernels() override;
  std::function<void()> announce(const Error&) override {
    return [this] { ++awaited; };
  }
  std::optional<std::string_view> replayed() override { return inReplay; }
};

/// Two streams of a program, the device being current.
class StreamTest : public ::testing::Test {
 protected:
  using Milliseconds = std::chrono::milliseconds;

  /// What goes from now on is freed when nothing runs: a thread of the test before that frees while
  /// the gate is closed would wait for it, and keep this one out of the driver.
  void SetUp() override;
  /// Opens the gate, waits until nothing uses it any more, and lets queues note the ends: they and
  /// their operations own each other until then.
  void TearDown() override;

  StreamQueueOptions options();
  std::shared_ptr<Queue> makeQueue() { return makeQueue(options()); }
  std::shared_ptr<Queue> makeQueue(const StreamQueueOptions& options);
  /// The operation of `gate` on the first stream.
  std::shared_ptr<StreamOperation> enqueue(Queue& queue, bool aside = false,
                                           Milliseconds timeout = Milliseconds(60'000),
                                           const std::shared_ptr<void>& buffer = nullptr);
  /// A graph of what `body` puts on the first stream.
  gpu::Graph capture(const std::function<void()>& body);
  void synchronize(gpu::Stream stream);

  const gpu::Runtime& runtime = standInRuntime();
  const gpu::ActiveDevice active{runtime, 0};
  Gate gate;
  std::shared_ptr<Observer> observer = std::make_shared<Observer>();
  gpu::OwnStream first{runtime, 0, false};
  gpu::OwnStream second{runtime, 0, false};

 private:
  std::vector<std::weak_ptr<Queue>> queues_;
};

}  // namespace ctran::testing
