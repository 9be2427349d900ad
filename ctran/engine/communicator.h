#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "ctran/base/error.h"
#include "ctran/base/work.h"
#include "ctran/bootstrap/store.h"
#include "ctran/collective/collective.h"

namespace ctran {

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string name = "world";    ///< for people and for keys in the store
  std::shared_ptr<Store> store;  ///< not needed when size is 1
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);  ///< of creation and of operations
  std::map<std::string, std::string> hints;
};

/// A group of ranks and the operations among them.
///
/// Threads: one at a time per communicator; `abort`, `isAborted` and Work::test from any thread at
/// any time. Collectives run in the order of their calls; sends and receives have an order of their
/// own per peer and direction.
class Communicator {
 public:
  /// Collective over all ranks of `options.size`. Throws Error. `hooks` as for `run`.
  static std::shared_ptr<Communicator> create(const CommunicatorOptions& options,
                                              WaitHooks* hooks = nullptr);

  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;
  virtual std::chrono::nanoseconds timeout() const = 0;
  virtual void setTimeout(std::chrono::nanoseconds timeout) = 0;
  /// From now on these count instead of those of creation. All ranks set the same ones between the
  /// same two calls. Throws Error(InvalidArgument) for what `callHints` refuses.
  virtual void setHints(const std::map<std::string, std::string>& hints) = 0;
  /// What Collective::hints is for a call with these hints: they come before the communicator's.
  /// Throws as setHints does.
  virtual std::shared_ptr<const CallHints> hintsOfCall(
      const std::map<std::string, std::string>& hints) const = 0;

  /// Runs the operation to its end on the caller's thread, after all operations posted before it on
  /// the same lane. A zero `timeout` means the communicator's. `hooks` are told before the thread
  /// blocks for longer than a moment, see WaitHooks. Throws Error; unless its kind is
  /// InvalidArgument, the communicator is broken from then on.
  virtual void run(const Collective& collective, std::chrono::nanoseconds timeout = {},
                   WaitHooks* hooks = nullptr) = 0;

  /// Queues the operation and returns at once. `keepAlive` is released when the operation has
  /// ended. Throws Error(InvalidArgument), or the error that has broken the communicator.
  virtual std::shared_ptr<Work> post(Collective collective, std::chrono::nanoseconds timeout = {},
                                     std::shared_ptr<void> keepAlive = nullptr) = 0;

  /// A communicator of the listed ranks of this one, in that order. Collective over all ranks of
  /// this communicator; every member of a group passes the same list, a rank that joins none passes
  /// an empty one and gets nullptr. `hooks` as for `run`.
  virtual std::shared_ptr<Communicator> split(std::span<const int> ranks, const std::string& name,
                                              std::chrono::nanoseconds timeout = {},
                                              WaitHooks* hooks = nullptr) = 0;

  /// Ends every blocked and every later operation of all ranks with Error(Aborted). Any thread.
  virtual void abort(const std::string& reason) = 0;
  /// Whether the communicator is broken: aborted, timed out, a peer lost, a mismatch. Any thread.
  virtual bool isAborted() const = 0;

  /// Waits for everything posted, then leaves. Peers that still need this rank get an error that
  /// names it. Later calls throw. Idempotent. `hooks` as for `run`; when they end the wait, the
  /// communicator is as before.
  virtual void finalize(WaitHooks* hooks = nullptr) = 0;
};

}  // namespace ctran
