#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ctran/base/collective_kind.h"
#include "ctran/base/data_type.h"
#include "ctran/base/export.h"
#include "ctran/base/reduce_op.h"
#include "ctran/communicator.h"
#include "ctran/plan.h"

/// Functions of the program that serve calls, beside the engine's algorithms and plans.
namespace ctran::api {

/// One call that a function serves. The counts are those of Call.
struct FunctionCall {
  /// A communicator of the same ranks for functions alone. It ends what waits there when the one
  /// that is served breaks.
  const std::shared_ptr<ctran::Communicator>& group;
  /// The owner's, on that communicator, as long as that lives; null at first.
  std::shared_ptr<void>& kept;
  CollectiveKind kind;
  DataType type;
  ReduceKind op;
  int root;
  const void* input;  ///< all blocks, one behind the other; of a broadcast, the output
  void* output;
  size_t inputBytes;
  size_t outputBytes;
  void* stream;  ///< of GPUs, which may be capturing
};

/// What the ranks agree about in a call.
struct FunctionQuery {
  int size;  ///< number of ranks
  DataType type;
  ReduceKind op;
  size_t inputBytes;
  size_t outputBytes;
};

/// A function that does one of all_reduce, all_gather, reduce_scatter, all_to_all and broadcast, on
/// ranks of one host. All ranks call it with the same call.
struct Function {
  /// Which buffers it takes; others are copied. In place, both begin at one address, or the smaller
  /// is this rank's block of the larger.
  enum class Places { Any, InPlace, OutOfPlace };

  std::string name;
  CollectiveKind kind = CollectiveKind::AllReduce;
  bool onGpus = false;  ///< its buffers are memory of the current GPU, else of the host
  Places places = Places::Any;
  /// What it belongs to: functions of one owner, registered one after the other, keep the same on a
  /// communicator. Null: it is its own.
  std::shared_ptr<void> owner = nullptr;
  /// Returns why it cannot serve a call, the same on all ranks; empty if it can.
  std::function<std::string(const FunctionQuery& query)> whyNot = nullptr;
  /// Does the call; on GPUs, puts it on the stream. What it throws breaks the communicator, with an
  /// error that names the function and the rank. On the host it runs on a thread of the engine's.
  std::function<void(const FunctionCall& call)> run = nullptr;
  /// Throws if something that `run` has put on a stream has failed. Any thread, at any time.
  std::function<void(void* kept)> check = nullptr;
};

/// Registers the function as registerPlan registers a plan, under the same names ("plan:NAME").
/// removePlan removes it. Safe from any thread.
CTRAN_API uint64_t registerFunction(Function function, const PlanUse& use = {});

}  // namespace ctran::api
