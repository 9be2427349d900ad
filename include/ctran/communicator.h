#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

/// The engine's interface for C++ programs: communicators here, windows in window.h, what programs
/// without CUDA need of GPUs in gpu.h, plans in plan.h. Every failure is thrown as a ctran::Error.
namespace ctran {

class Communicator;  // the engine's own class
class InitPoint;
class Rendezvous;  // the engine's own class
class StreamOperation;
struct CallHints;

namespace api {

using Hints = std::map<std::string, std::string>;

/// As the peer of a Recv: the receive takes a message from any rank.
inline constexpr int kAnyRank = -1;

/// A block is `count` elements at `data`.
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
  int root = 0;  ///< the root of the collective; for Send and Recv the peer
  int tag = 0;   ///< for Send and Recv: a receive takes messages of its own tag only
  size_t count = 0;
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<Block> inputs = {};
  std::vector<Block> outputs = {};
  /// For Recv: is set to the sender's rank; has to live as long as the buffer.
  int* source = nullptr;
  Hints hints = {};  ///< for this call only; they override the communicator's
  /// Hints read beforehand by Communicator::prepare; they replace `hints`.
  std::shared_ptr<const CallHints> prepared = {};
};

struct CommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string name = "world";    ///< used in messages to people and in keys of the store
  std::shared_ptr<Store> store;  ///< not needed when size is 1
  /// Default timeout of creation and of every operation.
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);
  Hints hints;
  bool gpus = false;  ///< the ranks will be given GPUs: hints name algorithms of GPUs
};

/// A CUstream or cudaStream_t.
using GpuStream = void*;

struct GpuOptions {
  int device = 0;  ///< the GPU of this rank, as the driver numbers them
  bool highPriority = false;
};

struct EnqueueOptions {
  std::chrono::milliseconds timeout{0};  ///< 0: the communicator's
  /// Runs the operation on the communicator's own stream, behind what the caller's stream holds by
  /// then, and leaves room on the GPU for other kernels.
  bool aside = false;
  /// Runs the operation on a stream of the highest priority, behind what the caller's stream holds;
  /// that one waits for it, except with `aside`. Makes no difference while it captures.
  bool highPriority = false;
  /// The most blocks that the kernel takes, and the threads of each block: up to 512, in whole
  /// warps. 0 leaves the choice to the algorithm. All ranks pass the same values.
  uint32_t blocks = 0, threads = 0;
  /// The buffers are memory that all ranks can map: the first call with one waits some seconds, at
  /// most, until they have, so that data goes straight from it and to it at once.
  bool symmetric = false;
  /// What owns the buffers: held until the operation has ended; in a capture, as long as the graph.
  std::shared_ptr<void> keepAlive = nullptr;
};

/// One operation on a stream.
class CTRAN_API StreamWork final {
 public:
  explicit StreamWork(std::shared_ptr<StreamOperation> engine);
  WorkState state() const;
  /// Blocks the thread until the operation has ended; throws its error.
  void wait(WaitHooks* hooks = nullptr);
  /// Makes `stream` wait for the operation; the calling thread goes on at once.
  void makeWait(GpuStream stream);

 private:
  std::shared_ptr<StreamOperation> engine_;
};

/// Opens the store that a URL names: "file:///DIRECTORY" serves processes of one user that see the
/// directory, which is created if needed; "memory://NAME" serves threads of one process. Throws
/// Error(InvalidArgument). Programs with a store of their own derive from Store.
CTRAN_API std::shared_ptr<Store> openStore(const std::string& url);

/// Says which algorithm would serve a call, and why.
struct Explanation {
  std::string algorithm;
  std::string why;
  std::string json;  ///< both of these, and for each alternative its cost or why it cannot serve
};

/// A communicator is a group of ranks, on one host or on several, and the operations among them.
///
/// Threads: one thread at a time uses a communicator; `abort`, `isAborted` and Work::test are safe
/// from any thread at any time. Collectives run in the order of their calls; sends and receives
/// keep an order of their own per peer and direction.
class CTRAN_API Communicator final {
 public:
  /// Creates the communicator. Collective over all ranks of `options.size`. `hooks` are told before
  /// a thread blocks, here and in all calls that take them.
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
  /// Replaces the hints of creation from now on. All ranks set the same hints between the same two
  /// calls.
  void setHints(const Hints& hints);
  /// Reads hints once, for calls that are made often. A later setHints does not affect them.
  std::shared_ptr<const CallHints> prepare(const Hints& hints) const;
  /// Returns the number of the host of each rank. Ranks of one host share memory.
  std::vector<int> hosts() const;

  /// Runs the operation to its end on the caller's thread, after everything posted before. A zero
  /// `timeout` means the communicator's. An error of any kind but InvalidArgument breaks the
  /// communicator.
  void run(const Call& call, std::chrono::nanoseconds timeout = {}, WaitHooks* hooks = nullptr);
  /// Queues the operation and returns at once. `keepAlive` is released when the operation has
  /// ended.
  std::shared_ptr<Work> post(const Call& call, std::chrono::nanoseconds timeout = {},
                             std::shared_ptr<void> keepAlive = nullptr);

  /// Gives each rank a GPU, so that the communicator has operations on streams. Collective, and
  /// once. Those on memory of the CPU stay, in one order with the others. Throws
  /// Error(Unsupported) on all ranks if a rank has no such GPU.
  void useGpu(const GpuOptions& options = {}, WaitHooks* hooks = nullptr);
  /// Makes a communicator of the same ranks that has GPUs, beside this one, which stays in use for
  /// memory of the CPU. An error that breaks this one breaks that one, too. Must not be called in a
  /// capture, where errors of the stream may be those of other calls. Collective.
  std::shared_ptr<Communicator> splitForGpus(const std::string& name,
                                             const GpuOptions& options = {},
                                             WaitHooks* hooks = nullptr);
  /// Returns this rank's GPU, or none.
  std::optional<int> gpu() const;
  /// Enqueues a collective behind what `stream` holds, and returns at once. Returns null while the
  /// stream captures: the operation is part of the graph then, and all ranks replay the same graphs
  /// in the same order.
  std::shared_ptr<StreamWork> enqueue(const Call& call, GpuStream stream,
                                      const EnqueueOptions& options = {},
                                      WaitHooks* hooks = nullptr);
  /// Enqueues sends and receives, which run at the same time; otherwise as `enqueue`.
  std::shared_ptr<StreamWork> enqueueMessages(std::span<const Call> messages, GpuStream stream,
                                              const EnqueueOptions& options = {});

  /// Makes a communicator of the listed ranks of this one, in that order. Collective over all ranks
  /// of this communicator; a rank that joins no group passes an empty list and gets null.
  std::shared_ptr<Communicator> split(std::span<const int> ranks, const std::string& name,
                                      std::chrono::nanoseconds timeout = {},
                                      WaitHooks* hooks = nullptr);

  /// Ends every blocked and every later operation of all ranks with Error(Aborted). Safe from any
  /// thread.
  void abort(const std::string& reason);
  /// Returns whether the communicator is broken. Safe from any thread.
  bool isAborted() const;
  /// Throws the error that has broken the communicator, if one has.
  void throwIfBroken() const;
  /// Waits for everything posted, then leaves the communicator. Later calls throw. Idempotent.
  /// Throws Error(Mismatch), after leaving, if the last collective of another rank was a different
  /// call.
  void finalize(WaitHooks* hooks = nullptr);

  /// Says what would serve a call of this type in which every rank contributes `bytes` bytes.
  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      const Hints& hints = {}) const;
  /// The same for hints that `prepare` has read; null: the communicator's.
  Explanation explain(CollectiveKind kind, size_t bytes, DataType type,
                      const std::shared_ptr<const CallHints>& prepared) const;
  /// Measures the algorithms that there are to choose from, for about `seconds`, and uses the
  /// result from now on, here and in later communicators of as many ranks on machines like this
  /// one. `progress` is told the part that is done, from 0 to 1, and what is next. Collective.
  /// Returns the table, as JSON.
  std::string tune(double seconds = 30,
                   const std::function<void(double, const std::string&)>& progress = nullptr);

  const std::shared_ptr<ctran::Communicator>& engine() const { return engine_; }

 private:
  const std::shared_ptr<ctran::Communicator> engine_;
};

/// Finds the communicator of this process that has this name and rank, whoever made it; the newest
/// one if there are several. Returns null if there is none. Safe from any thread.
CTRAN_API std::shared_ptr<Communicator> findCommunicator(const std::string& name, int rank);
/// Finds a communicator by its token, which is unique in this process.
CTRAN_API std::shared_ptr<Communicator> findCommunicator(uint64_t token);

/// An InitPoint is where other processes can reach this one, without a store, to form a
/// communicator with it.
class CTRAN_API InitPoint final {
 public:
  InitPoint();
  ~InitPoint();
  InitPoint(const InitPoint&) = delete;
  InitPoint& operator=(const InitPoint&) = delete;

  /// An ASCII string to be given to the others. Whoever knows it can join.
  const std::string& handle() const;
  /// Forms a communicator of the processes of `handles`; the process of `handles[r]` becomes rank
  /// r. Collective over them; all pass the same `occasion`, which they have not passed before. The
  /// fields rank, size and store of `options` are ignored.
  std::shared_ptr<Communicator> form(const std::vector<std::string>& handles,
                                     const std::string& occasion,
                                     const CommunicatorOptions& options = {},
                                     WaitHooks* hooks = nullptr);

 private:
  const std::unique_ptr<ctran::InitPoint> point_;
};

/// A Rendezvous lets processes that know one address and one secret exchange one string each, such
/// as the handles of their InitPoints: rank 0 listens, collects all strings, and sends all of them
/// to each process. A string has at most 64 KiB. The secret itself is not sent; whoever reads the
/// network can read the strings.
class CTRAN_API Rendezvous final {
 public:
  /// Rank 0 listens at an address such as "10.0.0.1:1234" or "[fd00::1]:1234"; if it is empty, at a
  /// free port.
  Rendezvous(const std::string& address, const std::string& secret);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Returns the addresses at which rank 0 listens.
  std::vector<std::string> addresses() const;
  /// Rank 0 calls this. Returns the strings of all ranks, by rank.
  std::vector<std::string> gather(int size, const std::string& word,
                                  std::chrono::nanoseconds timeout, WaitHooks* hooks = nullptr);
  /// Every other rank calls this, and waits until rank 0 listens at one of the addresses. Returns
  /// the strings of all ranks, by rank.
  static std::vector<std::string> join(const std::vector<std::string>& addresses,
                                       const std::string& secret, int rank, int size,
                                       const std::string& word, std::chrono::nanoseconds timeout,
                                       WaitHooks* hooks = nullptr);

 private:
  const std::unique_ptr<ctran::Rendezvous> engine_;
};

}  // namespace api
}  // namespace ctran
