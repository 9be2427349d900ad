#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ctran/base/collective_kind.h"
#include "ctran/base/data_type.h"
#include "ctran/base/error.h"
#include "ctran/base/export.h"
#include "ctran/base/reduce_op.h"
#include "ctran/base/work.h"
#include "ctran/bootstrap/store.h"

/// The engine's interface for C++ programs: communicators here, windows in window.h, GPUs in gpu.h,
/// plans in plan.h. Every failure is thrown as a ctran::Error.
namespace ctran {

class Communicator;  // of the engine
class InitPoint;
class Rendezvous;  // of the engine
struct CallHints;

namespace api {

using Hints = std::map<std::string, std::string>;

/// As the peer of Recv: whoever comes first.
inline constexpr int kAnyRank = -1;

/// `count` elements at `data`.
struct Block {
  std::byte* data = nullptr;
  size_t count = 0;
};

/// One collective, send or receive, as one rank sees it. Buffers need no alignment.
///
///   kind            | input                       | output                      | count
///   ----------------|-----------------------------|-----------------------------|------------------
///   Barrier         | -                           | -                           | -
///   Broadcast       | -                           | 1 block, read at root       | of the block
///   AllReduce       | 1 block                     | 1 block                     | of the block
///   Reduce          | 1 block                     | 1 block, at root only       | of the block
///   AllGather       | 1 block                     | one block per rank          | of one block
///   AllGatherV      | 1 block                     | one block per rank, listed  | of the input
///   ReduceScatter   | one block per rank          | 1 block                     | of one block
///   ReduceScatterV  | one block per rank, listed  | 1 block                     | of the output
///   Scatter         | one block per rank, at root | 1 block                     | of one block
///   Gather          | 1 block                     | one block per rank, at root | of one block
///   AllToAll        | one block per rank          | one block per rank          | of one block
///   AllToAllV       | one block per rank, listed  | one block per rank, listed  | -
///   Send            | 1 block                     | -                           | of the block
///   Recv            | -                           | 1 block                     | of the block
///
/// "One block per rank" is contiguous unless listed in `inputs` or `outputs`, which then hold one
/// Block per rank. Input and output may be the same memory block by block (in place: where one of
/// them has one block, it is this rank's block of the other); other overlap is an error.
struct Call {
  CollectiveKind kind = CollectiveKind::Barrier;
  DataType type = DataType::UInt8;
  ReduceOp op = {};
  int root = 0;  ///< root; the peer of Send and Recv
  int tag = 0;   ///< of Send and Recv: a message goes to a receive of its tag
  size_t count = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<Block> inputs = {};
  std::vector<Block> outputs = {};
  int* source = nullptr;  ///< of Recv: gets the sender's rank; lives as the buffer does
  Hints hints = {};       ///< of this call: they come before the communicator's
  /// From Communicator::prepare, instead of `hints`.
  std::shared_ptr<const CallHints> prepared = {};
};

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string name = "world";    ///< for people and for keys in the store
  std::shared_ptr<Store> store;  ///< not needed when size is 1
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);  ///< of creation and of operations
  Hints hints;
};

/// The store that a URL names: "file:///DIRECTORY", for processes of one user that see the
/// directory, which is made if it is not there; "memory://NAME", for threads of one process. Throws
/// Error(InvalidArgument). Programs with a store of their own derive from Store.
CTRAN_API std::shared_ptr<Store> openStore(const std::string& url);

/// What would serve a call, and why.
struct Explanation {
  std::string algorithm;
  std::string why;
  std::string json;  ///< of these, and of each alternative: its cost, and why it cannot serve
};

/// A group of ranks and the operations among them, on one host or on several.
///
/// Threads: one at a time per communicator; `abort`, `isAborted` and Work::test from any thread at
/// any time. Collectives run in the order of their calls; sends and receives have an order of their
/// own per peer and direction.
class CTRAN_API Communicator final {
 public:
  /// Collective over all ranks of `options.size`. `hooks` are told before a thread blocks, here and
  /// in all calls that take them.
  static std::shared_ptr<Communicator> create(const CommunicatorOptions& options,
                                              WaitHooks* hooks = nullptr);
  explicit Communicator(std::shared_ptr<ctran::Communicator> engine);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;
  std::chrono::nanoseconds timeout() const;
  void setTimeout(std::chrono::nanoseconds timeout);
  /// From now on these count instead of those of creation; all ranks set the same ones between the
  /// same two calls.
  void setHints(const Hints& hints);
  /// Reads hints once, for calls that come often. What setHints sets later does not count for them.
  std::shared_ptr<const CallHints> prepare(const Hints& hints) const;
  /// For each rank, the number of its host. Ranks of one host share memory.
  std::vector<int> hosts() const;

  /// Runs the operation to its end on the caller's thread, behind what was posted. A zero `timeout`
  /// means the communicator's. Unless the error's kind is InvalidArgument, the communicator is
  /// broken from then on.
  void run(const Call& call, std::chrono::nanoseconds timeout = {}, WaitHooks* hooks = nullptr);
  /// Queues the operation and returns at once. `keepAlive` is released when it has ended.
  std::shared_ptr<Work> post(const Call& call, std::chrono::nanoseconds timeout = {},
                             std::shared_ptr<void> keepAlive = nullptr);

  /// A communicator of the listed ranks of this one, in that order. Collective over all ranks of
  /// this communicator; a rank that joins no group passes an empty list and gets null.
  std::shared_ptr<Communicator> split(std::span<const int> ranks, const std::string& name,
                                      std::chrono::nanoseconds timeout = {},
                                      WaitHooks* hooks = nullptr);

  /// Ends every blocked and every later operation of all ranks with Error(Aborted). Any thread.
  void abort(const std::string& reason);
  /// Whether the communicator is broken. Any thread.
  bool isAborted() const;
  /// Waits for everything posted, then leaves. Later calls throw. Idempotent. Throws
  /// Error(Mismatch), after leaving, if another rank has called another last collective.
  void finalize(WaitHooks* hooks = nullptr);

  /// What would serve a call in which every rank contributes that many bytes of that type.
  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      const Hints& hints = {}) const;
  /// Measures what there is to choose from, for about that long, and uses the result from now on,
  /// here and in later communicators of as many ranks on machines like this one. `progress` is told
  /// how much is done, from 0 to 1, and what is next. Collective. Returns the table, as JSON.
  std::string tune(double seconds = 30,
                   const std::function<void(double, const std::string&)>& progress = nullptr);

  const std::shared_ptr<ctran::Communicator>& engine() const { return engine_; }

 private:
  const std::shared_ptr<ctran::Communicator> engine_;
};

/// The communicator of this process that has the name and the rank, whoever has made it: the last
/// one, if there are several. Null if there is none. Any thread.
CTRAN_API std::shared_ptr<Communicator> findCommunicator(const std::string& name, int rank);
/// The same by its token, which no other one of this process has.
CTRAN_API std::shared_ptr<Communicator> findCommunicator(uint64_t token);

/// Where a process can be reached by others that want to form a communicator with it, without a
/// store.
class CTRAN_API Meeting final {
 public:
  Meeting();
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// A word of ASCII, to be given to the others. Whoever knows it can join.
  const std::string& handle() const;
  /// A communicator of the processes of `handles`, rank r that of `handles[r]`. Collective over
  /// them; all pass the same `occasion`, one that they have not passed before. Of `options`, rank,
  /// size and store do not matter.
  std::shared_ptr<Communicator> form(const std::vector<std::string>& handles,
                                     const std::string& occasion,
                                     const CommunicatorOptions& options = {},
                                     WaitHooks* hooks = nullptr);

 private:
  const std::unique_ptr<InitPoint> point_;
};

/// How processes that know one address and one secret tell each other a word each, such as the
/// handles of their Meetings: rank 0 listens, hears all, and tells all. A word has at most 64 KiB.
/// The secret itself is not sent; the words can be read by whoever reads the network.
class CTRAN_API Rendezvous final {
 public:
  /// Rank 0 listens at "10.0.0.1:1234" or "[fd00::1]:1234"; without an address at a free port.
  Rendezvous(const std::string& address, const std::string& secret);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Where it listens.
  std::vector<std::string> addresses() const;
  /// Rank 0's part: everybody's words, by rank.
  std::vector<std::string> gather(int size, const std::string& word,
                                  std::chrono::nanoseconds timeout, WaitHooks* hooks = nullptr);
  /// The part of the others, who wait until rank 0 listens at one of the addresses.
  static std::vector<std::string> join(const std::vector<std::string>& addresses,
                                       const std::string& secret, int rank, int size,
                                       const std::string& word, std::chrono::nanoseconds timeout,
                                       WaitHooks* hooks = nullptr);

 private:
  const std::unique_ptr<ctran::Rendezvous> engine_;
};

}  // namespace api
}  // namespace ctran
