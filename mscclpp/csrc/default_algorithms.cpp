#include "default_algorithms.h"

#include <cstring>
#include <limits>

#include "calls.h"
#include "ctran/gpu.h"

namespace mscclpp {
namespace {

constexpr size_t kKB = 1 << 10, kMB = 1 << 20, kNoLimit = std::numeric_limits<size_t>::max();

struct Default {
  const char* name;
  const char* collective;
  const char* onOneHost;  ///< the engine's algorithm; null: as it likes
  size_t least = 0;
  size_t most = kNoLimit;
  const char* tag = nullptr;
  const char* otherTag = nullptr;
};

// As mscclpp/defaults.py has them (tests/mscclpp/test_default_algorithms.py
// compares). Sizes are those for
// which a selector should take them; every one serves every size.
constexpr Default kDefaults[] = {
    {"default_allreduce_allpair_packet", "allreduce", "direct", 0, 16 * kKB},
    {"default_allreduce_nvls_packet", "allreduce", nullptr, 0, 512 * kKB, "nvls"},
    {"default_allreduce_packet", "allreduce", "two_phase", 0, 4 * kMB},
    {"default_allreduce_nvls_zero_copy", "allreduce", nullptr, 0, kNoLimit, "nvls", "zero_copy"},
    {"default_allreduce_nvls_warp_pipeline", "allreduce", "two_phase", 0, kNoLimit, "nvls"},
    {"default_allreduce_nvls_block_pipeline", "allreduce", "two_phase", 0, kNoLimit, "nvls"},
    {"default_allreduce_fullmesh", "allreduce", "direct"},
    {"default_allreduce_rsag", "allreduce", "two_phase"},
    {"default_allreduce_rsag_pipeline", "allreduce", "two_phase"},
    {"default_allreduce_rsag_zero_copy", "allreduce", "pull", 512 * kKB, kNoLimit, "zero_copy"},
    {"default_allgather_fullmesh", "allgather", "rounds"},
    {"default_allgather_fullmesh2", "allgather", "pull", 0, kNoLimit, "zero_copy"},
    {"default_reduce_scatter_fullmesh", "reducescatter", "rounds"},
    {"default_reduce_scatter_zero_copy", "reducescatter", "pull", 0, kNoLimit, "zero_copy"},
    {"default_alltoall_fullmesh", "alltoall", "rounds"},
    {"default_alltoall_zero_copy", "alltoall", "pull", 0, kNoLimit, "zero_copy"},
    {"default_broadcast_fullmesh", "broadcast", "rounds"},
    {"default_broadcast_zero_copy", "broadcast", "pull", 0, kNoLimit, "zero_copy"},
};

class DefaultAlgorithm : public Algorithm {
 public:
  explicit DefaultAlgorithm(const Default& made)
      : shape_(*shapeOf(made.collective)),
        onOneHost_(made.onOneHost),
        name_(made.name),
        collective_(made.collective),
        range_(made.least, made.most) {
    for (const char* tag : {made.tag, made.otherTag}) {
      if (tag != nullptr) tags_[tag] = 1;
    }
  }

  const std::string& name() const override { return name_; }
  const std::string& collective() const override { return collective_; }
  const std::pair<size_t, size_t>& messageRange() const override { return range_; }
  void setMessageSizeRange(size_t least, size_t most) override {
    if (least > most) {
      throw Error(
          "no message has " + std::to_string(least) + " to " + std::to_string(most) + " bytes",
          ErrorCode::InvalidUsage);
    }
    range_ = {least, most};
  }
  const std::unordered_map<std::string, uint64_t>& tags() const override { return tags_; }
  const CollectiveBufferMode& bufferMode() const override { return mode_; }
  AlgorithmType type() const override { return AlgorithmType::Native; }
  Constraint constraint() const override { return {}; }
  void reset() override {}

  CommResult execute(std::shared_ptr<Communicator> comm, const void* input, void* output,
                     size_t inputSize, size_t outputSize, DataType dtype, ReduceOp op, cudaStream_t,
                     std::shared_ptr<Executor>, int, int, bool, const Extras& extras,
                     DataType accumDtype) override {
    const auto bootstrap =
        comm ? std::dynamic_pointer_cast<TcpBootstrap>(comm->bootstrap()) : nullptr;
    if (!bootstrap) {
      throw Error(name_ + " needs a communicator with a TcpBootstrap", ErrorCode::InvalidUsage);
    }
    if (ctran::api::gpuOf(input) || ctran::api::gpuOf(output)) {
      throw Error(name_ + " is for memory of the host; on GPUs, call it from Python",
                  ErrorCode::InvalidUsage);
    }
    ctran::api::Call call;
    call.kind = shape_.kind;
    call.type = engineType(dtype);
    call.op.kind = engineReduction(op);
    if (reduces() && (!isSupported(call.op.kind, call.type) || !sumsAreIn(accumDtype, dtype))) {
      return CommResult::CommInvalidArgument;
    }
    const int ranks = bootstrap->getNranks(), rank = bootstrap->getRank();
    const auto root = extras.find("root");
    if (root != extras.end()) call.root = static_cast<int>(root->second);
    if (call.root < 0 || call.root >= ranks) return CommResult::CommInvalidArgument;
    call.input = input;
    call.output = output;
    call.count =
        countOf(shape_, inputSize, outputSize, static_cast<size_t>(ranks), sizeOf(call.type));
    call.hints = {{"ctran::deterministic", "rank_order"}};
    if (onOneHost_ != nullptr && bootstrap->getNranksPerNode() == ranks) {
      call.hints["ctran::algorithm"] = std::string(shape_.name) + "=" + onOneHost_;
    }
    // In the engine's broadcasts the root has what it sends where the others receive.
    if (call.kind == ctran::CollectiveKind::Broadcast && rank == call.root && input != output) {
      std::memmove(output, input, inputSize);
    }
    try {
      bootstrap->engine()->run(call);
    } catch (const ctran::Error& error) {
      throw Error(error.what(), ErrorCode::ExecutorError);
    }
    return CommResult::CommSuccess;
  }

 private:
  bool reduces() const {
    return shape_.kind == ctran::CollectiveKind::AllReduce ||
           shape_.kind == ctran::CollectiveKind::ReduceScatter;
  }

  const Shape& shape_;
  const char* const onOneHost_;
  const std::string name_;
  const std::string collective_;
  std::pair<size_t, size_t> range_;
  std::unordered_map<std::string, uint64_t> tags_;
  const CollectiveBufferMode mode_ = CollectiveBufferMode::Any;
};

}  // namespace

std::vector<std::shared_ptr<Algorithm>> defaultAlgorithms() {
  std::vector<std::shared_ptr<Algorithm>> all;
  for (const Default& one : kDefaults) all.push_back(std::make_shared<DefaultAlgorithm>(one));
  return all;
}

}  // namespace mscclpp
