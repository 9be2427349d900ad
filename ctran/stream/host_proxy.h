#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "ctran/base/error.h"
#include "ctran/gpu/driver.h"

namespace ctran {

/// Work of the host at a place in the order of a stream: the stream hands a step to the proxy's
/// thread, goes on, and waits for it further down. In a graph every replay does so by itself; no
/// call enqueues anything for it.
///
/// A stream hands over by a function of the host (cuLaunchHostFunc), which does no more than put
/// the step into a queue and wake the thread. It waits for a word in the host's memory
/// (cuStreamWaitValue32), which the thread sets and the stream clears again. So nothing waits on a
/// multiprocessor. Steps are done one after the other, in the order in which streams hand them
/// over.
///
/// Two threads wake until such a function has been heard. So outside graphs a stream writes to the
/// word, too, at which the thread looks for a moment after a call; and one that had nothing else to
/// do when the operation was called, and comes to the step at once, writes there alone.
class HostProxy {
 public:
  /// One piece of work, which a stream may hand over again and again. A stream that has handed it
  /// over has to wait for it before it does so again.
  class Step;

  /// `failed` is told on the proxy's thread of what a step has thrown, and must not throw.
  /// `spinNanos`: for how long the thread looks before it sleeps; 0: not at all. Throws
  /// Error(Unsupported) if this driver cannot have streams wait for words. The device is current.
  HostProxy(int device, int64_t spinNanos, std::function<void(const Error&)> failed);
  /// Streams must not have steps any more, but in graphs that are not replayed again.
  ~HostProxy();
  HostProxy(const HostProxy&) = delete;
  HostProxy& operator=(const HostProxy&) = delete;

  /// `captured`: the caller keeps the step as long as the graph; otherwise it is kept here until
  /// the stream has waited for it.
  std::shared_ptr<Step> makeStep(std::function<void()> work, bool captured);
  /// `isIdle`: the stream had nothing to do when the operation was called.
  void handOver(Step& step, gpu::Stream stream, bool isIdle = false);
  void await(Step& step, gpu::Stream stream);

  /// From now on steps count as done at once, without their work. Any thread.
  void stop();
  /// Whether a step is being done, or is about to be. Any thread.
  bool isBusy() const;

 private:
  struct State;

  static bool isOver(const std::shared_ptr<Step>& step);

  const std::shared_ptr<State> state_;
};

}  // namespace ctran
