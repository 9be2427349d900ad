#include "mscclpp/algorithm.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "agreement.h"
#include "ctran/gpu.h"

namespace mscclpp {
namespace {

/// Of one algorithm on one communicator: enough for the buffers of most programs, and an end to
/// what buffers that come and go would leave.
constexpr size_t kMostContexts = 64;

using ctran::api::GpuAllocation;
using ctran::api::gpuAllocationOf;

/// Which allocations of GPUs a context was made for: an address may be another one's by now.
struct Allocations {
  uint64_t input = 0;
  uint64_t output = 0;
  friend bool operator==(const Allocations&, const Allocations&) = default;
};

/// Throws Error(InvalidUsage) for memory that such kernels do not reach.
uint64_t checkedAllocation(const std::string& name, const char* what, const void* memory,
                           size_t bytes, DeviceType kernels) {
  const GpuAllocation found = gpuAllocationOf(memory);
  if (bytes == 0 || memory == nullptr) return found.id;
  const auto fail = [&](const std::string& why) {
    throw Error("the " + std::string(what) + " of " + name + " " + why, ErrorCode::InvalidUsage);
  };
  if (kernels == DeviceType::GPU && found.device < 0) {
    fail(
        "is in memory of the host, but it was compiled for GPUs: pass memory of a GPU, or compile "
        "with device='cpu'");
  }
  if (kernels == DeviceType::GPU && found.device != ctran::api::currentGpu().value_or(0)) {
    fail("is on GPU " + std::to_string(found.device) + ", but GPU " +
         std::to_string(ctran::api::currentGpu().value_or(0)) +
         " is current: call torch.cuda.set_device");
  }
  if (kernels != DeviceType::GPU && found.device >= 0) {
    fail(
        "is in memory of a GPU, but it was compiled for the host: pass memory of the host, or "
        "compile with device='cuda'");
  }
  return found.id;
}

/// Throws Error(InvalidUsage) if buffers share memory, but are not in place; or as the algorithm
/// was not written. In place both begin at one address, or the smaller is this rank's block of the
/// larger.
void checkPlaces(const std::string& name, CollectiveBufferMode mode, int rank, const void* input,
                 size_t inputBytes, const void* output, size_t outputBytes) {
  if (inputBytes == 0 || outputBytes == 0) return;
  const auto from = reinterpret_cast<uintptr_t>(input), to = reinterpret_cast<uintptr_t>(output);
  const auto block = static_cast<size_t>(rank) * std::min(inputBytes, outputBytes);
  const bool isInPlace = from == to || (inputBytes < outputBytes && from == to + block) ||
                         (outputBytes < inputBytes && to == from + block);
  const auto fail = [&](const std::string& why) {
    throw Error("the input and the output of " + name + " " + why, ErrorCode::InvalidUsage);
  };
  if (!isInPlace && from < to + outputBytes && to < from + inputBytes) {
    fail("overlap: " + std::to_string(inputBytes) + " bytes from " + std::to_string(from) +
         " on, and " + std::to_string(outputBytes) + " from " + std::to_string(to) +
         " on; in place, they begin at one address, or the smaller is this rank's block");
  }
  if (isInPlace && mode == CollectiveBufferMode::OutOfPlace) {
    fail("are the same memory, but it is written for two: copy the input elsewhere first");
  }
  if (!isInPlace && mode == CollectiveBufferMode::InPlace) {
    fail("are apart, but it is written for one: copy the input to its place in the output first");
  }
}

struct HashOfKey {
  size_t operator()(const AlgorithmCtxKey& key) const {
    size_t hash = 0;
    const auto add = [&](size_t value) {
      hash ^= std::hash<size_t>()(value) + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
    };
    add(reinterpret_cast<uintptr_t>(key.baseSendBuff));
    add(reinterpret_cast<uintptr_t>(key.baseRecvBuff));
    add(key.baseSendSize);
    add(key.baseRecvSize);
    add(static_cast<size_t>(key.tag));
    return hash;
  }
};

}  // namespace

class NativeAlgorithm::Impl {
 public:
  /// What a key of this rank stands for: memory that was allocated anew is something else.
  struct Buffers {
    Allocations allocations;
    uint32_t number = 0;  ///< told to the other ranks
    uint64_t lastCall = 0;
  };
  struct Context {
    std::shared_ptr<void> made;  ///< null when that memory has gone, or if it could not be made
    uint64_t lastCall = 0;
  };
  /// What calls on one communicator have left.
  struct Served {
    std::weak_ptr<Communicator> communicator;
    Agreement agreement;
    int rank;
    std::unordered_map<AlgorithmCtxKey, Buffers, HashOfKey> buffers = {};
    /// By the numbers of the buffers of all ranks. All ranks have the same ones, as they make and
    /// forget them in the same calls.
    std::map<std::vector<uint32_t>, Context> contexts = {};
    uint32_t numbers = 0;
    uint64_t calls = 0;

    uint32_t numberOf(const AlgorithmCtxKey& key, const Allocations& allocations) {
      const auto found = buffers.find(key);
      if (found != buffers.end() && found->second.allocations == allocations) {
        found->second.lastCall = calls;
        return found->second.number;
      }
      if (found != buffers.end()) forget(found);
      makeRoomIn(buffers);
      return (buffers[key] = {allocations, ++numbers, calls}).number;
    }

    void forget(const AlgorithmCtxKey& key) { forget(buffers.find(key)); }

   private:
    /// That number does not come again.
    void forget(const decltype(buffers)::iterator& known) {
      for (auto& [all, context] : contexts) {
        if (all[rank] == known->second.number) context.made = nullptr;
      }
      buffers.erase(known);
    }
  };

  /// What was used longest ago goes.
  template <class Entries>
  static void makeRoomIn(Entries& entries) {
    if (entries.size() < kMostContexts) return;
    const auto earlier = [](const auto& a, const auto& b) {
      return a.second.lastCall < b.second.lastCall;
    };
    entries.erase(std::min_element(entries.begin(), entries.end(), earlier));
  }

  using AllServed = std::map<const Communicator*, std::shared_ptr<Served>>;

  /// Of that communicator, for which the algorithm is initialized.
  std::shared_ptr<Served> servedOn(const std::shared_ptr<Communicator>& communicator) {
    // An address may be another communicator's by now.
    const AllServed gone =
        taken([](const auto& entry) { return entry.second->communicator.expired(); });
    {
      const std::lock_guard lock(mutex);
      const auto found = served.find(communicator.get());
      if (found != served.end()) return found->second;
    }
    // Without the lock: these wait for other ranks, which may be about another communicator first.
    if (init) init(communicator);
    const auto fresh = std::make_shared<Served>(
        Served{communicator, Agreement(*communicator), communicator->bootstrap()->getRank()});
    const std::lock_guard lock(mutex);
    return served.emplace(communicator.get(), fresh).first->second;
  }

  /// What is destroyed is the user's, so that is done without the lock.
  template <class Which>
  AllServed taken(const Which& which) {
    AllServed all;
    const std::lock_guard lock(mutex);
    for (auto entry = served.begin(); entry != served.end();) {
      const auto next = std::next(entry);
      if (which(*entry)) all.insert(served.extract(entry));
      entry = next;
    }
    return all;
  }

  std::string name;
  std::string collective;
  InitFunc init;
  KernelFunc kernel;
  ContextInitFunc contextInit;
  ContextKeyGenFunc contextKey;
  std::pair<size_t, size_t> range;
  CollectiveBufferMode mode;
  std::unordered_map<std::string, uint64_t> tags;
  Constraint constraint;
  DeviceType kernels;
  std::mutex mutex;  // guards which there are below; each is used by its communicator's one thread
  AllServed served;
};

NativeAlgorithm::NativeAlgorithm(std::string name, std::string collective, InitFunc initFunc,
                                 KernelFunc kernelFunc, ContextInitFunc contextInitFunc,
                                 ContextKeyGenFunc contextKeyGenFunc, size_t minMessageSize,
                                 size_t maxMessageSize, CollectiveBufferMode bufferMode,
                                 std::unordered_map<std::string, uint64_t> tags,
                                 Constraint constraint, DeviceType kernels)
    : impl_(new Impl{std::move(name),
                     std::move(collective),
                     std::move(initFunc),
                     std::move(kernelFunc),
                     std::move(contextInitFunc),
                     std::move(contextKeyGenFunc),
                     {minMessageSize, maxMessageSize},
                     bufferMode,
                     std::move(tags),
                     constraint,
                     kernels,
                     {},
                     {}}) {}
NativeAlgorithm::~NativeAlgorithm() = default;

const std::string& NativeAlgorithm::name() const { return impl_->name; }
const std::string& NativeAlgorithm::collective() const { return impl_->collective; }
const std::pair<size_t, size_t>& NativeAlgorithm::messageRange() const { return impl_->range; }
const std::unordered_map<std::string, uint64_t>& NativeAlgorithm::tags() const {
  return impl_->tags;
}
const CollectiveBufferMode& NativeAlgorithm::bufferMode() const { return impl_->mode; }
Algorithm::Constraint NativeAlgorithm::constraint() const { return impl_->constraint; }
DeviceType NativeAlgorithm::device() const { return impl_->kernels; }

void NativeAlgorithm::setMessageSizeRange(size_t minMessageSize, size_t maxMessageSize) {
  if (minMessageSize > maxMessageSize) {
    throw Error("no message has " + std::to_string(minMessageSize) + " to " +
                    std::to_string(maxMessageSize) + " bytes",
                ErrorCode::InvalidUsage);
  }
  impl_->range = {minMessageSize, maxMessageSize};
}

CommResult NativeAlgorithm::execute(std::shared_ptr<Communicator> comm, const void* input,
                                    void* output, size_t inputSize, size_t outputSize,
                                    DataType dtype, ReduceOp op, cudaStream_t stream,
                                    std::shared_ptr<Executor>, int nBlocks, int nThreadsPerBlock,
                                    bool symmetricMemory, const Extras& extras,
                                    DataType accumDtype) {
  if (!comm) throw Error("an algorithm needs a communicator", ErrorCode::InvalidUsage);
  const Bootstrap& bootstrap = *comm->bootstrap();
  const Constraint& wanted = impl_->constraint;
  if ((wanted.worldSize != 0 && wanted.worldSize != bootstrap.getNranks()) ||
      (wanted.nRanksPerNode != 0 && wanted.nRanksPerNode != bootstrap.getNranksPerNode()) ||
      nBlocks < 0 || nThreadsPerBlock < 0) {
    return CommResult::CommInvalidArgument;
  }
  comm->checkWaits();
  checkPlaces(impl_->name, impl_->mode, bootstrap.getRank(), input, inputSize, output, outputSize);
  const Allocations allocations{
      checkedAllocation(impl_->name, "input", input, inputSize, impl_->kernels),
      checkedAllocation(impl_->name, "output", output, outputSize, impl_->kernels)};
  const std::shared_ptr<Impl::Served> kept = impl_->servedOn(comm);
  Impl::Served& served = *kept;
  const AlgorithmCtxKey key =
      impl_->contextKey(input, output, inputSize, outputSize, dtype, symmetricMemory);
  ++served.calls;
  const std::vector<uint32_t>& all = served.agreement.all(served.numberOf(key, allocations));
  auto found = served.contexts.find(all);
  if (found == served.contexts.end()) {  // on all ranks
    Impl::makeRoomIn(served.contexts);
    found = served.contexts.emplace(all, Impl::Context{nullptr, served.calls}).first;
    try {
      found->second.made = impl_->contextInit(comm, input, output, inputSize, outputSize, dtype);
    } catch (...) {
      served.forget(key);  // others may have made theirs: the next call has another number
      throw;
    }
  }
  Impl::Context& context = found->second;
  context.lastCall = served.calls;
  const auto launch = [&] {
    return impl_->kernel(context.made, input, output, inputSize, outputSize, dtype, op, stream,
                         nBlocks, nThreadsPerBlock, extras, accumDtype);
  };
  if (impl_->kernels != DeviceType::GPU) return launch();
  const ctran::api::GpuLaunch launching(stream);
  return launch();
}

void NativeAlgorithm::reset() {
  impl_->taken([](const auto&) { return true; });
}
void NativeAlgorithm::reset(const Communicator& communicator) {
  impl_->taken([&](const auto& entry) { return entry.first == &communicator; });
}

DslAlgorithm::DslAlgorithm(std::string id, ExecutionPlan plan,
                           std::unordered_map<std::string, uint64_t> tags, Constraint constraint)
    : id_(std::move(id)),
      plan_(std::move(plan)),
      range_(plan_.minMessageSize(), plan_.maxMessageSize()),
      tags_(std::move(tags)),
      constraint_(constraint) {}

void DslAlgorithm::setMessageSizeRange(size_t minMessageSize, size_t maxMessageSize) {
  if (minMessageSize > maxMessageSize) {
    throw Error("no message has " + std::to_string(minMessageSize) + " to " +
                    std::to_string(maxMessageSize) + " bytes",
                ErrorCode::InvalidUsage);
  }
  range_ = {minMessageSize, maxMessageSize};
}

CommResult DslAlgorithm::execute(std::shared_ptr<Communicator> comm, const void* input,
                                 void* output, size_t inputSize, size_t outputSize, DataType dtype,
                                 ReduceOp, cudaStream_t stream, std::shared_ptr<Executor> executor,
                                 int, int, bool, const Extras&, DataType) {
  if (!comm) throw Error("an algorithm needs a communicator", ErrorCode::InvalidUsage);
  const Bootstrap& bootstrap = *comm->bootstrap();
  if (!executor || (constraint_.worldSize != 0 && constraint_.worldSize != bootstrap.getNranks()) ||
      (constraint_.nRanksPerNode != 0 &&
       constraint_.nRanksPerNode != bootstrap.getNranksPerNode())) {
    return CommResult::CommInvalidArgument;
  }
  executor->execute(bootstrap.getRank(), const_cast<void*>(input), output, inputSize, outputSize,
                    dtype, plan_, stream);
  return CommResult::CommSuccess;
}

void AlgorithmCollection::registerAlgorithm(const std::string& collective,
                                            const std::string& algoName,
                                            std::shared_ptr<Algorithm> algorithm) {
  algorithms_[collective][algoName] = std::move(algorithm);
}

std::shared_ptr<Algorithm> AlgorithmCollection::selectAlgorithm(
    const CollectiveRequest& request) const {
  for (const AlgoSelectFunc* select : {&selector_, &fallback_}) {
    if (!*select) continue;
    auto chosen = (*select)(algorithms_, request);
    if (!chosen) continue;
    if (chosen->collective() == request.collective) return chosen;
    throw Error("the selector was asked for " + request.collective + ", and returned " +
                    chosen->name() + ", of " + chosen->collective(),
                ErrorCode::InvalidUsage);
  }
  return nullptr;
}

std::unordered_map<std::string, std::shared_ptr<Algorithm>>
AlgorithmCollection::getAlgorithmsByCollective(const std::string& collective) const {
  const auto found = algorithms_.find(collective);
  if (found == algorithms_.end()) return {};
  return found->second;
}

std::vector<std::shared_ptr<Algorithm>> AlgorithmCollection::getAllAlgorithms() const {
  std::vector<std::shared_ptr<Algorithm>> all;
  for (const auto& [collective, byName] : algorithms_) {
    for (const auto& [name, algorithm] : byName) all.push_back(algorithm);
  }
  return all;
}

void AlgorithmCollection::extend(const AlgorithmCollection& other) {
  for (const auto& [collective, byName] : other.algorithms_) {
    for (const auto& [name, algorithm] : byName) registerAlgorithm(collective, name, algorithm);
  }
}

void AlgorithmCollection::setSelectors(AlgoSelectFunc selector, AlgoSelectFunc fallback) {
  selector_ = std::move(selector);
  fallback_ = std::move(fallback);
}

}  // namespace mscclpp
