#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mscclpp/core.hpp>
#include <mscclpp/executor.hpp>
#include <mscclpp/gpu.hpp>
#include <mscclpp/gpu_data_types.hpp>

namespace mscclpp {

/// Whether input and output may, or have to, be the same memory.
enum class CollectiveBufferMode { Any = 0, InPlace, OutOfPlace };

enum class AlgorithmType { Native = 0, DSL };

enum class CommResult {
  CommSuccess = 0,
  CommUnhandledCudaError = 1,
  CommSystemError = 2,
  CommInternalError = 3,
  CommInvalidArgument = 4,
  CommInvalidUsage = 5,
  CommRemoteError = 6,
  CommInProgress = 7,
};

/// How contributions are put together. NOP: what the algorithm does by itself.
enum class ReduceOp {
  SUM = 0,
  PROD = 1,
  MAX = 2,
  MIN = 3,
  AVG = 4,
  BAND = 5,
  BOR = 6,
  BXOR = 7,
  NOP = 255
};

/// Named words that a call passes on to an algorithm, such as pointers.
using Extras = std::unordered_map<std::string, uintptr_t>;

class Algorithm {
 public:
  /// For which communicators it is; 0: for any.
  struct Constraint {
    int worldSize = 0;
    int nRanksPerNode = 0;
  };

  virtual ~Algorithm() = default;

  virtual const std::string& name() const = 0;
  virtual const std::string& collective() const = 0;
  /// Bytes of the messages that it is for, both ends included.
  virtual const std::pair<size_t, size_t>& messageRange() const = 0;
  virtual void setMessageSizeRange(size_t minMessageSize, size_t maxMessageSize) = 0;
  virtual const std::unordered_map<std::string, uint64_t>& tags() const = 0;
  virtual const CollectiveBufferMode& bufferMode() const = 0;
  virtual AlgorithmType type() const = 0;
  virtual Constraint constraint() const = 0;

  /// One call, on every rank of the communicator in the same order. Sizes are in bytes. With 0
  /// blocks or threads the algorithm chooses. On a GPU it returns when the work is on the stream,
  /// on the host when it is done. Throws Error if the call or the communicator failed; returns what
  /// the algorithm says.
  virtual CommResult execute(std::shared_ptr<Communicator> comm, const void* input, void* output,
                             size_t inputSize, size_t outputSize, DataType dtype, ReduceOp op,
                             cudaStream_t stream, std::shared_ptr<Executor> executor,
                             int nBlocks = 0, int nThreadsPerBlock = 0,
                             bool symmetricMemory = false, const Extras& extras = {},
                             DataType accumDtype = DataType::AUTO) = 0;

  /// Lets go of what earlier calls left, such as channels. All ranks do so between the same calls.
  virtual void reset() = 0;
};

class AlgorithmBuilder {
 public:
  virtual ~AlgorithmBuilder() = default;
  virtual std::shared_ptr<Algorithm> build() = 0;
};

/// What calls have to have in common for one context to serve them.
struct AlgorithmCtxKey {
  void* baseSendBuff = nullptr;
  void* baseRecvBuff = nullptr;
  size_t baseSendSize = 0;
  size_t baseRecvSize = 0;
  int tag = 0;

  friend bool operator==(const AlgorithmCtxKey& a, const AlgorithmCtxKey& b) {
    return a.baseSendBuff == b.baseSendBuff && a.baseRecvBuff == b.baseRecvBuff &&
           a.baseSendSize == b.baseSendSize && a.baseRecvSize == b.baseRecvSize && a.tag == b.tag;
  }
};

/// An algorithm of functions, whose kernels run where those of its program do. Contexts are kept
/// per communicator. The first call in which a rank has a new key, or memory that was allocated
/// anew at a known address, makes one on all ranks, so that may be collective; a context is never
/// null.
class MSCCLPP_API NativeAlgorithm : public Algorithm {
 public:
  using InitFunc = std::function<void(std::shared_ptr<Communicator>)>;
  using ContextInitFunc = std::function<std::shared_ptr<void>(
      std::shared_ptr<Communicator>, const void*, void*, size_t, size_t, DataType)>;
  using ContextKeyGenFunc =
      std::function<AlgorithmCtxKey(const void*, void*, size_t, size_t, DataType, bool)>;

  /// Launches the kernel: with 12 arguments, the last of which is the type to accumulate in, or
  /// with 11, without it.
  class KernelFunc {
   public:
    template <class F, class = std::enable_if_t<!std::is_same_v<F, KernelFunc>>>
    KernelFunc(F f) {
      using Shared = const std::shared_ptr<void>&;
      if constexpr (std::is_invocable_r_v<CommResult, F&, Shared, const void*, void*, size_t,
                                          size_t, DataType, ReduceOp, cudaStream_t, int, int,
                                          const Extras&, DataType>) {
        call_ = std::move(f);
      } else {
        static_assert(
            std::is_invocable_r_v<CommResult, F&, Shared, const void*, void*, size_t, size_t,
                                  DataType, ReduceOp, cudaStream_t, int, int, const Extras&>,
            "it takes (context, input, output, inputSize, outputSize, dtype, op, stream, "
            "nBlocks, nThreadsPerBlock, extras), and accumDtype if it wants to, and "
            "returns a CommResult");
        call_ = [f = std::move(f)](Shared context, const void* input, void* output,
                                   size_t inputSize, size_t outputSize, DataType dtype, ReduceOp op,
                                   cudaStream_t stream, int nBlocks, int nThreads,
                                   const Extras& extras, DataType) mutable {
          return f(context, input, output, inputSize, outputSize, dtype, op, stream, nBlocks,
                   nThreads, extras);
        };
      }
    }

    CommResult operator()(const std::shared_ptr<void>& context, const void* input, void* output,
                          size_t inputSize, size_t outputSize, DataType dtype, ReduceOp op,
                          cudaStream_t stream, int nBlocks, int nThreadsPerBlock,
                          const Extras& extras, DataType accumDtype) const {
      return call_(context, input, output, inputSize, outputSize, dtype, op, stream, nBlocks,
                   nThreadsPerBlock, extras, accumDtype);
    }

   private:
    std::function<CommResult(const std::shared_ptr<void>&, const void*, void*, size_t, size_t,
                             DataType, ReduceOp, cudaStream_t, int, int, const Extras&, DataType)>
        call_;
  };

  NativeAlgorithm(std::string name, std::string collective, InitFunc initFunc,
                  KernelFunc kernelFunc, ContextInitFunc contextInitFunc,
                  ContextKeyGenFunc contextKeyGenFunc, size_t minMessageSize = 0,
                  size_t maxMessageSize = std::numeric_limits<size_t>::max(),
                  CollectiveBufferMode bufferMode = CollectiveBufferMode::Any,
                  std::unordered_map<std::string, uint64_t> tags = {}, Constraint constraint = {},
                  DeviceType kernels = kKernelDevice);
  ~NativeAlgorithm() override;

  const std::string& name() const override;
  const std::string& collective() const override;
  const std::pair<size_t, size_t>& messageRange() const override;
  void setMessageSizeRange(size_t minMessageSize, size_t maxMessageSize) override;
  const std::unordered_map<std::string, uint64_t>& tags() const override;
  const CollectiveBufferMode& bufferMode() const override;
  AlgorithmType type() const override { return AlgorithmType::Native; }
  Constraint constraint() const override;
  /// Where its kernels run.
  DeviceType device() const;
  CommResult execute(std::shared_ptr<Communicator> comm, const void* input, void* output,
                     size_t inputSize, size_t outputSize, DataType dtype, ReduceOp op,
                     cudaStream_t stream, std::shared_ptr<Executor> executor, int nBlocks = 0,
                     int nThreadsPerBlock = 0, bool symmetricMemory = false,
                     const Extras& extras = {}, DataType accumDtype = DataType::AUTO) override;
  /// Contexts that a call uses at this time go when it has ended.
  void reset() override;
  /// The same of calls on one communicator.
  void reset(const Communicator& communicator);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

/// A program of the DSL, which an Executor executes. It is its own builder.
class MSCCLPP_API DslAlgorithm : public Algorithm,
                                 public AlgorithmBuilder,
                                 public std::enable_shared_from_this<DslAlgorithm> {
 public:
  /// `id` is a number of the program's own, for whoever tells programs apart.
  DslAlgorithm(std::string id, ExecutionPlan plan,
               std::unordered_map<std::string, uint64_t> tags = {}, Constraint constraint = {});

  const std::string& id() const { return id_; }
  const std::string& name() const override { return plan_.name(); }
  const std::string& collective() const override { return plan_.collective(); }
  const std::pair<size_t, size_t>& messageRange() const override { return range_; }
  void setMessageSizeRange(size_t minMessageSize, size_t maxMessageSize) override;
  const std::unordered_map<std::string, uint64_t>& tags() const override { return tags_; }
  const CollectiveBufferMode& bufferMode() const override { return mode_; }
  AlgorithmType type() const override { return AlgorithmType::DSL; }
  Constraint constraint() const override { return constraint_; }
  /// As Executor::execute, with what the program reduces by; other blocks, threads and extras have
  /// no effect. CommInvalidArgument without an executor, or where the constraint is not met.
  CommResult execute(std::shared_ptr<Communicator> comm, const void* input, void* output,
                     size_t inputSize, size_t outputSize, DataType dtype, ReduceOp op,
                     cudaStream_t stream, std::shared_ptr<Executor> executor, int nBlocks = 0,
                     int nThreadsPerBlock = 0, bool symmetricMemory = false,
                     const Extras& extras = {}, DataType accumDtype = DataType::AUTO) override;
  void reset() override {}
  std::shared_ptr<Algorithm> build() override { return shared_from_this(); }

 private:
  const std::string id_;
  const ExecutionPlan plan_;
  std::pair<size_t, size_t> range_;
  const std::unordered_map<std::string, uint64_t> tags_;
  const CollectiveBufferMode mode_ = CollectiveBufferMode::Any;
  const Constraint constraint_;
};

/// What a selector is asked about.
struct CollectiveRequest {
  int worldSize = 1;
  int nRanksPerNode = 1;
  int rank = 0;
  const void* inputBuffer = nullptr;
  void* outputBuffer = nullptr;
  size_t messageSize = 0;
  cudaStream_t stream = nullptr;
  std::string collective = {};
  DataType dtype = DataType::UINT8;
  std::unordered_map<std::string, std::vector<uint64_t>> hints = {};

  CollectiveBufferMode bufferMode() const {
    return inputBuffer == outputBuffer ? CollectiveBufferMode::InPlace
                                       : CollectiveBufferMode::OutOfPlace;
  }
};

/// Algorithms by collective, then by name.
using AlgorithmsByCollective =
    std::unordered_map<std::string, std::unordered_map<std::string, std::shared_ptr<Algorithm>>>;
using AlgoSelectFunc = std::function<std::shared_ptr<Algorithm>(const AlgorithmsByCollective&,
                                                                const CollectiveRequest&)>;

class MSCCLPP_API AlgorithmCollection {
 public:
  /// Replaces what has that name.
  void registerAlgorithm(const std::string& collective, const std::string& algoName,
                         std::shared_ptr<Algorithm> algorithm);
  /// What the selector says, else what the fallback says, else null. Throws Error(InvalidUsage) if
  /// it is of another collective.
  std::shared_ptr<Algorithm> selectAlgorithm(const CollectiveRequest& request) const;
  std::unordered_map<std::string, std::shared_ptr<Algorithm>> getAlgorithmsByCollective(
      const std::string& collective) const;
  std::vector<std::shared_ptr<Algorithm>> getAllAlgorithms() const;
  void extend(const AlgorithmCollection& other);
  void setSelectors(AlgoSelectFunc selector, AlgoSelectFunc fallback);

 private:
  AlgorithmsByCollective algorithms_;
  AlgoSelectFunc selector_;
  AlgoSelectFunc fallback_;
};

/// As the name of a capsule that Python gets: it holds a std::shared_ptr<Algorithm>*.
inline constexpr const char* ALGORITHM_NATIVE_CAPSULE_NAME = "mscclpp::AlgorithmPtr";

}  // namespace mscclpp
