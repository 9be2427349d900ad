#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "ctran/base/error.h"
#include "ctran/gpu/driver.h"

namespace ctran {

/// Runs work of the host at a place in the order of a stream: the stream hands a step to the
/// proxy's thread, goes on, and waits for the step further down. In a graph every replay does this
/// by itself, without any call.
///
/// A stream hands a step over by a host function (cuLaunchHostFunc), which only puts the step into
/// a queue and wakes the thread. The stream waits for a word in host memory (cuStreamWaitValue32),
/// which the thread sets and the stream clears again. So nothing waits on a multiprocessor. Steps
/// run one after the other, in the order in which streams hand them over.
///
/// A host function takes the wake-ups of two threads before the proxy learns of it. So outside
/// graphs the stream writes to the word, too, and the proxy's thread looks at the word for a moment
/// after a call. A stream that was idle at the call, and so reaches the step at once, only writes
/// the word.
class HostProxy {
 public:
  /// A piece of work, which a stream may hand over again and again. Before it does so again, the
  /// stream has to wait for it.
  class Step;

  /// `failed` is told, on the proxy's thread, of an error that a step has thrown; it must not
  /// throw. `spinNanos`: how long the thread looks before it sleeps; 0: not at all. Throws
  /// Error(Unsupported) if this driver cannot make streams wait for words. The device has to be
  /// current.
  HostProxy(int device, int64_t spinNanos, std::function<void(const Error&)> failed);
  /// No stream may hold steps any more, except in graphs that are not replayed again.
  ~HostProxy();
  HostProxy(const HostProxy&) = delete;
  HostProxy& operator=(const HostProxy&) = delete;

  /// `captured`: the caller keeps the step as long as the graph; otherwise the proxy keeps it until
  /// the stream has waited for it.
  std::shared_ptr<Step> makeStep(std::function<void()> work, bool captured);
  /// `isIdle`: the stream was idle when the operation was called.
  void handOver(Step& step, gpu::Stream stream, bool isIdle = false);
  void await(Step& step, gpu::Stream stream);

  /// From now on steps count as done at once, and their work does not run. Safe from any thread.
  void stop();
  /// Returns whether a step is running, or about to run. Safe from any thread.
  bool isBusy() const;

 private:
  struct State;

  static bool isOver(const std::shared_ptr<Step>& step);

  const std::shared_ptr<State> state_;
};

}  // namespace ctran
