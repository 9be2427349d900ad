#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ctran/collective/collective.h"

namespace ctran {

class Communicator;

/// Bytes of all blocks.
struct FunctionBytes {
  size_t input = 0;
  size_t output = 0;
};
FunctionBytes functionBytes(const Collective& collective, int size);

/// A function of the program that does what a collective does, on as many ranks as there are.
struct UserFunction {
  /// Which buffers it takes. In place, both begin at one address, or the smaller is this rank's
  /// block of the larger.
  enum class Places { Any, InPlace, OutOfPlace };

  struct Call {
    const std::shared_ptr<Communicator>& group;  ///< of the same ranks, for functions alone
    std::shared_ptr<void>& kept;                 ///< the function's own, on that communicator
    const Collective&
        collective;  ///< its buffers are contiguous, and where the function takes them
    FunctionBytes bytes;
    void* stream;  ///< of GPUs
  };

  std::string name;
  CollectiveKind kind = CollectiveKind::AllReduce;
  bool onGpus = false;
  Places places = Places::Any;
  /// What it belongs to: functions of one owner keep the same on a communicator. Null: of its own.
  std::shared_ptr<void> owner = nullptr;
  /// Returns why it cannot serve a call, as far as all ranks agree about it; empty if it can.
  std::function<std::string(const Collective& collective, int size)> whyNot;
  /// Does the call to its end, or puts it on the stream. Throws; then the communicator breaks.
  std::function<void(const Call& call)> run;
  /// Throws if something that `run` has put on a stream has failed. Any thread, at any time.
  std::function<void(void* kept)> check;
};

/// A call whose buffers are as a function takes them, and what has to be copied around it.
struct PlacedCall {
  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
  };
  Collective collective;
  FunctionBytes bytes;
  std::vector<Copy> before, after;
};

/// `staging` returns so much memory; it is called at most once.
PlacedCall placed(const Collective& collective, UserFunction::Places places, int rank, int size,
                  const std::function<std::byte*(size_t)>& staging);

/// Returns why no function serves calls of that kind; empty if functions do.
std::string whyNoFunction(CollectiveKind kind);

}  // namespace ctran
