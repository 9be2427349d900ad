#pragma once

#include <memory>

#include "ctran/base/work.h"
#include "ctran/communicator.h"
#include "mscclpp/core.hpp"
#include "mscclpp/errors.hpp"

namespace mscclpp {

/// From now on `isInterrupted` is asked about twenty times a second by waits on the main thread,
/// and ends them if it returns something else than 0. Python's look at its signals.
void setInterruption(int (*isInterrupted)());

struct Interrupted final : Error {
  Interrupted() : Error("interrupted by a signal", ErrorCode::Aborted) {}
};

/// Throws Interrupted if waits on this thread are to end.
void checkInterruption();

/// For what the engine waits for.
class Interruptible final : public ctran::WaitHooks {
 public:
  void interrupted() override { checkInterruption(); }
};

/// Waits with that limit end when the engine's communicator is aborted, by whichever rank. Those of
/// GPUs, which look at nothing but the limit, end also when the process of the peer has.
void endsWith(WaitLimit* limit, const std::shared_ptr<ctran::api::Communicator>& engine,
              bool isOfGpu);
/// Before the limit goes.
void endsNoMore(const WaitLimit* limit);
bool isAborted(const WaitLimit* limit);

}  // namespace mscclpp
