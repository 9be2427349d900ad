#include "ctran/engine/gpu_domain.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "ctran/base/config.h"
#include "ctran/base/log.h"
#include "ctran/base/rank_list.h"
#include "ctran/base/text.h"
#include "ctran/collective/signature.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/gpu/discard.h"
#include "ctran/gpu/peers.h"
#include "ctran/select/members.h"
#include "ctran/select/plans.h"
#include "ctran/trace/preparation.h"
#include "ctran/trace/served.h"

namespace ctran {
namespace {

using gpu::check;
using std::chrono::milliseconds;

const ConfigInt kSmBudget{"CTRAN_GPU_SM_BUDGET", 64,
                          "How many multiprocessors an asynchronous reduction of a communicator "
                          "takes at most; a synchronous one, up to half of each of twice as many; "
                          "what moves data has flows in proportion. The least of all ranks counts.",
                          1, device::kMaxFlows};

const ConfigBool kThroughHost{
    "CTRAN_GPU_THROUGH_HOST", false,
    "Communicators of GPUs go through the host's memory, as they do where GPUs cannot reach each "
    "other. One rank that has it set is enough."};

/// How much later a kernel ends than the host would end its operation.
constexpr std::chrono::seconds kDeviceGrace{1};
constexpr std::chrono::seconds kDomainEndPatience{2};
constexpr size_t kProbeBytes = 200000;
/// So many blocks of a plan move data nearly as fast as any number.
constexpr uint32_t kPlanBlocks = 64;
/// Persistent operations of smaller blocks are as any others, unless copy engines are asked for.
constexpr size_t kLeastPersistentBlock = 16 << 20;
constexpr std::chrono::nanoseconds kMostRegistration = std::chrono::seconds(30);
/// What is written into a mapping that does not work never comes.
constexpr std::chrono::seconds kProbePatience{20};

int multiprocessors(int device) {
  return gpu::attributeOf(gpu::deviceHandle(device), gpu::DeviceAttribute::MultiprocessorCount);
}

/// Whether lines serve on this GPU and the link to the one at that address is known to carry them
/// whole: NVLink, which knows atomic operations.
bool carriesLines(int device, uint64_t address) {
  constexpr int kLeastCapability = 8;
  const gpu::Device own = gpu::deviceHandle(device);
  return gpu::attributeOf(own, gpu::DeviceAttribute::ComputeCapabilityMajor) >= kLeastCapability &&
         gpu::hasNativeAtomics(device, address);
}

}  // namespace

/// What a rank says of itself, and of how far it has come.
struct GpuDomain::Introduction {
  uint64_t scratchBytes;
  uint64_t pciAddress;
  uint32_t budget;
  uint32_t stepBytes;
  bool wantsHost;  ///< CTRAN_GPU_THROUGH_HOST
  bool takesHost;
  bool carriesLines;
  uint64_t table;  ///< of what it has measured
  ErrorKind kind;
  bool failed;
  char why[230];
};

GpuDomain::GpuDomain(Communicator& control, int device, std::vector<int> names)
    : control_(control),
      device_(device),
      names_(std::move(names)),
      runtime_(gpu::Runtime::of(gpu::Platform::Cuda)),
      memory_(control_.rank(), control_.size(), device),
      symmetric_(control_.rank(), control_.size(), device),
      staging_(device),
      user_(names_.empty() ? userPreferences() : Preferences()) {}

std::unique_ptr<GpuDomain> GpuDomain::create(Communicator& control, int device, WaitHooks* hooks,
                                             GpuFallback fallback, std::vector<int> names) {
  const bool isPart = !names.empty();
  std::unique_ptr<GpuDomain> made(new GpuDomain(control, device, std::move(names)));
  made->connect(fallback, hooks);
  if (!isPart) {
    announceExplainer(control.token(),
                      std::shared_ptr<Explainer>(control.shared_from_this(), made.get()));
  }
  return made;
}

template <class Step>
std::vector<GpuDomain::Introduction> GpuDomain::agree(WaitHooks* hooks, const Step& step) {
  Introduction own{};
  try {
    step(own);
  } catch (const Error& error) {
    own.failed = true;
    own.kind = error.kind();
    copyText(own.why, error.what());
  }
  std::vector<Introduction> all = exchangeAll(control_, own, {}, hooks);
  for (int r = 0; r < control_.size(); ++r) {
    if (!all[r].failed) continue;
    throw Error(all[r].kind,
                "the GPU of rank " + std::to_string(nameOf(r)) + " of communicator '" +
                    control_.name() + "' cannot take part: " + std::string(boundedText(all[r].why)),
                {nameOf(r)}, "new_comm",
                "nvidia-smi topo -p2p r shows which GPUs reach each other; backend nccl works "
                "without that");
  }
  return all;
}

void GpuDomain::connect(GpuFallback fallback, WaitHooks* hooks) {
  user_.checkPlaces({AlgorithmPlace::Gpus, AlgorithmPlace::GpuHosts},
                    "GPUs");  // the same on all ranks
  const auto all = agree(hooks, [&](Introduction& own) {
    own.budget =
        static_cast<uint32_t>(std::min<int64_t>(kSmBudget.get(), multiprocessors(device_)));
    own.pciAddress = gpu::pciAddressOf(device_);
    own.stepBytes = memory_.stepBytes();
    own.wantsHost = kThroughHost.get();
    own.takesHost = fallback == GpuFallback::HostMemory;
  });
  const auto links = agree(hooks, [&](Introduction& own) {
    own.carriesLines = true;
    for (const Introduction& one : all) {
      own.carriesLines = own.carriesLines && carriesLines(device_, one.pciAddress);
      if (one.stepBytes != memory_.stepBytes()) {
        throw Error(ErrorKind::InvalidArgument, "CTRAN_GPU_STEP_BYTES differs among the ranks");
      }
    }
    MovingKernels::of(device_, control_.size());
  });
  lines_ =
      control_.size() > 1 && std::all_of(links.begin(), links.end(),
                                         [](const Introduction& one) { return one.carriesLines; });
  blocks_ = device::kMaxFlows;
  std::map<uint64_t, int> first;  // rank by address
  for (int r = 0; r < control_.size() && !sharedGpu_; ++r) {
    const auto [one, isNew] = first.emplace(all[r].pciAddress, r);
    if (!isNew) sharedGpu_ = {one->second, r};
  }
  bool wantsHost = false, takesHost = true;
  for (const Introduction& one : all) {
    blocks_ = std::min(blocks_, one.budget);
    wantsHost = wantsHost || one.wantsHost;
    takesHost = takesHost && one.takesHost;
  }
  if (wantsHost && !takesHost) {
    throw Error(ErrorKind::Unsupported, "CTRAN_GPU_THROUGH_HOST is set");
  }
  if (!wantsHost) {
    try {
      return share(hooks);
    } catch (const Error& error) {  // on all ranks alike
      if (error.kind() != ErrorKind::Unsupported || !takesHost) throw;
      log(LogComponent::Gpu, control_.rank() == 0 ? LogLevel::Warn : LogLevel::Info,
          "communicator '%s' goes through the host's memory: %s", control_.name().c_str(),
          error.what());
    }
  }
  context_.reset();
  memory_.goThroughHost();
  share(hooks);
}

void GpuDomain::share(WaitHooks* hooks) {
  UniqueFd scratch;
  const auto allocated = agree(hooks, [&](Introduction& own) {
    scratch = memory_.allocate(GpuContext::flowsOf(blocks_), lines_);
    own.scratchBytes = memory_.scratchBytes();
  });
  const size_t blocks = PeerMemory::controlBlockBytes(control_.size());
  const size_t boards = SymmetricMemory::boardBytes(control_.size());
  const HostGroup group = control_.handOver(blocks + boards, std::move(scratch), hooks);
  agree(hooks, [&](Introduction&) {
    std::vector<size_t> bytes;
    for (const Introduction& one : allocated) bytes.push_back(one.scratchBytes);
    try {
      memory_.connect(group, bytes, boards);
    } catch (const Error& error) {
      throw Error(ErrorKind::Unsupported, error.what());
    }
    events_ = std::make_shared<gpu::EventPool>(runtime_, device_, 4);
    last_ = gpu::PooledEvent(events_);
    symmetric_.connect(isThroughHost() ? nullptr : memory_.controlBlocks(), blocks,
                       memory_.team().state);
    context_.emplace(memory_.team(), device_, blocks_, symmetric_);
    context_->makeCopies = [this] { return makeCopies(); };
    selector_.emplace(control_.size(), context_->limits(isThroughHost()));
  });
  setTimeout(std::min<std::chrono::nanoseconds>(control_.timeout(), kProbePatience));
  TuningTable table = TuningTable::load(control_.size(), tunedMachine());
  const auto probed = agree(hooks, [&](Introduction& own) {
    own.table = table.hash();
    probe();
  });
  setTimeout(control_.timeout());
  const bool isShared = std::all_of(probed.begin(), probed.end(), [&](const Introduction& one) {
    return one.table == table.hash();
  });
  if (isShared) selector_->use(std::move(table));
  selector_->prefer(control_.hint(), user_, control_.sumsInRankOrder());
  selector_->usePlans(control_.name(), [this](const PlanAlgorithm& plan, const Collective& c) {
    if (isThroughHost()) return std::string("it needs GPUs that reach each other's memory");
    if (!names_.empty() && plan.function() != nullptr) return std::string("it cannot span hosts");
    if (plan.function() != nullptr) return std::string();
    return GpuPlan::whyNot(plan, c, blocks_);
  });
  hooks_ = hooks;
  prepareWanted();
}

/// What tables of such GPUs are kept under. Those of backend ncclx are about its members.
std::string GpuDomain::tunedMachine() const {
  return gpuMachine(device_) + (isThroughHost() ? "-through-host" : "-kernels");
}

void GpuDomain::force(const std::string& algorithm) {
  if (algorithm.empty()) return selector_->force({}, {});
  const size_t equals = std::min(algorithm.find('='), algorithm.size());
  const auto kind = collectiveKindNamed(algorithm.substr(0, equals));
  if (!kind || equals == algorithm.size()) {
    throw Error(ErrorKind::InvalidArgument,
                "'" + algorithm + "' is not of the form COLLECTIVE=ALGORITHM");
  }
  selector_->force(*kind, std::string_view(algorithm).substr(equals + 1));
}

TuningTable GpuDomain::use(TuningTable table) {
  force({});
  table.machine = tunedMachine();
  table.ranks = control_.size();
  selector_->use(table);
  return table;
}

/// Patterns through every mapping, in packets and in steps: drivers have been seen to grant access
/// that then loses or misplaces data.
void GpuDomain::probe() {
  const gpu::Launching launching;  // kernels that wait for the other ranks
  const gpu::Driver& driver = gpu::Driver::get();
  const gpu::DeviceGuard guard(device_);
  const gpu::RelaxedCapture relaxed(runtime_);
  const gpu::OwnStream stream(runtime_, device_, false);
  const int size = control_.size();
  const auto buffer = gpu::DeviceMemory::allocate(device_, kProbeBytes * (size + 1));
  const auto pattern = [](int rank) {
    std::vector<unsigned char> bytes(kProbeBytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>((i * 31 + i / 251 + rank * 97) % 255 + 1);
    }
    return bytes;
  };
  const auto own = pattern(control_.rank());
  std::vector<unsigned char> found(kProbeBytes * size);
  for (const size_t count : {size_t{5000}, kProbeBytes}) {
    check(driver.memsetD32Async(buffer.address(), 0, buffer.size() / 4, stream.get()),
          "cuMemsetD32Async");
    check(driver.memcpyHtoDAsync(buffer.address(), own.data(), kProbeBytes, stream.get()),
          "cuMemcpyHtoDAsync");
    std::vector<Collective> messages;
    Collective gather;
    gather.kind = CollectiveKind::AllGather;
    gather.count = count;
    gather.input = reinterpret_cast<const std::byte*>(buffer.address());
    gather.output = reinterpret_cast<std::byte*>(buffer.address() + kProbeBytes);
    if (count == kProbeBytes) {  // the same over flows
      gather.kind = CollectiveKind::AllToAllV;
      for (int r = 0; r < size; ++r) {
        gather.inputs.push_back({const_cast<std::byte*>(gather.input), count});
        gather.outputs.push_back({gather.output + r * count, count});
      }
    }
    launchNative(gather, {stream.get()});
    check(driver.memcpyDtoHAsync(found.data(), buffer.address() + kProbeBytes, count * size,
                                 stream.get()),
          "cuMemcpyDtoHAsync");
    check(driver.streamSynchronize(stream.get()), "cuStreamSynchronize");
    const device::Report& report = memory_.controlBlock(control_.rank()).report;
    for (int r = 0; r < size; ++r) {
      if (std::memcmp(found.data() + r * count, pattern(r).data(), count) == 0) continue;
      throw Error(ErrorKind::Unsupported,
                  report.state == 0 ? "what rank " + std::to_string(nameOf(r)) +
                                          "'s GPU wrote into this one's memory did not arrive"
                                    : "nothing came from rank " +
                                          listed(named(awaitedByKernels(control_.rank()))));
    }
  }
}

void GpuDomain::setTimeout(std::chrono::nanoseconds timeout) {
  const auto limit = std::chrono::nanoseconds(timeout + kDeviceGrace).count();
  std::atomic_ref(memory_.controlBlock(control_.rank()).control.timeoutNs)
      .store(static_cast<uint64_t>(limit), std::memory_order_relaxed);
}

/// Before a launch. Hosts end what is late; a kernel does so later, where no host looks.
void GpuDomain::begin(const GpuTarget& target) {
  const bool own = target.timeout.count() != 0 && target.timeout != control_.timeout();
  memory_.setTimeout(own ? target.timeout + kDeviceGrace : target.timeout.zero());
  order(target.stream, true);
}

/// Operations on different streams run in the order of the calls. Not so in captures, whose order
/// is the program's.
void GpuDomain::order(gpu::Stream stream, bool before) {
  if (before && any_ && stream == lastStream_) return;
  if (runtime_.isCapturing(stream)) return;
  if (!before) {
    runtime_.check(runtime_.eventRecord(last_.get(), stream), "recording an event");
    lastStream_ = stream;
    any_ = true;
  } else if (any_) {
    runtime_.check(runtime_.streamWaitEvent(stream, last_.get(), 0), "making a stream wait");
  }
}

/// The ranks hand over memory of a part when they first need it; all do, as all choose alike.
/// `variable` settles how much, the same on all ranks.
template <class Part, class Make>
std::unique_ptr<Part> GpuDomain::setUp(const char* variable, WaitHooks* hooks, const Make& make) {
  const Preparation preparation;
  const gpu::RelaxedCapture relaxed(runtime_);
  std::unique_ptr<Part> made;
  UniqueFd memory;
  const auto all = agree(hooks, [&](Introduction& own) {
    made = make();
    memory = made->allocate();
    own.scratchBytes = made->memoryBytes();
  });
  const HostGroup group =
      control_.handOver(PeerMemory::controlBlockBytes(1), std::move(memory), hooks);
  agree(hooks, [&](Introduction&) {
    for (const Introduction& one : all) {
      if (one.scratchBytes == made->memoryBytes()) continue;
      throw Error(ErrorKind::InvalidArgument, std::string(variable) + " differs among the ranks");
    }
    made->connect(group);
  });
  return made;
}

/// `blocks`: that the call asks for, if it does.
GpuPlan& GpuDomain::setUpPlan(const Collective& c, uint32_t blocks, WaitHooks* hooks) {
  const int root = c.kind == CollectiveKind::Broadcast ? c.root : c.plan->plan().root;
  blocks = std::min(blocks_, blocks != 0 ? blocks : kPlanBlocks);
  const std::tuple key(c.plan->hash(), root, blocks);
  if (const auto known = plans_.find(key); known != plans_.end()) return *known->second;
  auto made = setUp<GpuPlan>("CTRAN_GPU_PLAN_BYTES", hooks, [&] {
    auto plan = std::make_unique<GpuPlan>(c.plan, root, memory_.team(), device_, blocks);
    plan->prepare(c);
    return plan;
  });
  return *(plans_[key] = std::move(made));
}

/// All ranks choose alike, and so come here in the same call.
FunctionGroup& GpuDomain::setUpFunctions(std::chrono::nanoseconds timeout, WaitHooks* hooks) {
  if (!functions_) {
    const Preparation preparation;
    auto made = std::make_shared<FunctionGroup>(control_, timeout, hooks);
    const std::lock_guard lock(functionsMutex_);
    functions_ = std::move(made);
  }
  return *functions_;
}

/// By a function of the program, which waits for the other ranks as it likes.
void GpuDomain::launchFunction(const Collective& c, const GpuTarget& target, WaitHooks* hooks) {
  FunctionGroup& group = setUpFunctions(target.timeout, hooks);
  group.setTimeout(target.timeout.count() != 0 ? target.timeout : control_.timeout());
  begin(target);
  if (c.count == 0) return;
  const gpu::RelaxedCapture relaxed(runtime_);
  const auto copy = [&](const std::vector<PlacedCall::Copy>& copies) {
    for (const PlacedCall::Copy& one : copies) {
      gpu::copyAsync(gpu::addressOf(one.to), gpu::addressOf(one.from), one.bytes, target.stream);
    }
  };
  const PlacedCall call =
      placed(c, c.plan->function()->places, control_.rank(), control_.size(),
             [&](size_t bytes) { return reinterpret_cast<std::byte*>(staging_.of(bytes)); });
  try {
    copy(call.before);
    {
      const Blocking blocking(hooks);  // it may wait for other ranks
      group.run(c.plan, call, target.stream);
    }
    copy(call.after);
  } catch (const Error& error) {  // some of it may be on the streams of some ranks
    fail(error);
    throw;
  }
}

std::unique_ptr<CopyEngines> GpuDomain::makeCopies() {
  return setUp<CopyEngines>("CTRAN_GPU_COPY_BYTES", hooks_,
                            [&] { return std::make_unique<CopyEngines>(memory_.team(), device_); });
}

/// What needs the other ranks, and somebody has named for all calls.
void GpuDomain::prepareWanted() {
  for (const CollectiveKind kind :
       {CollectiveKind::AllGather, CollectiveKind::AllToAll, CollectiveKind::Broadcast}) {
    const std::string* const name = wantedFor(kind, nullptr);
    if (name == nullptr || control_.size() == 1 || isThroughHost()) continue;
    const Algorithm* const algorithm = findAlgorithm(AlgorithmPlace::Gpus, kind, *name);
    if (algorithm == nullptr || !algorithm->preparesTogether) continue;
    algorithm->prepare(*context_, {});
  }
}

void GpuDomain::prepareCall(CollectiveKind kind, size_t bytes, DataType type, ReduceKind op,
                            std::shared_ptr<const CallHints> hints) {
  const gpu::RelaxedCapture relaxed(runtime_);
  Collective call;
  call.kind = kind;
  call.type = type;
  call.op.kind = op;
  const bool inBlocks = kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::Scatter ||
                        kind == CollectiveKind::AllToAll;
  call.count = (inBlocks ? bytes / control_.size() : bytes) / sizeOf(type);
  if (!hints) hints = control_.standingHints();
  call.hints = std::move(hints);
  if (auto plan = selector_->choosePlan(call)) {
    call.plan = std::move(plan);
    if (call.plan->function() != nullptr) {
      setUpFunctions({}, nullptr);
    } else {
      setUpPlan(call, 0, nullptr);
    }
    return;
  }
  const Algorithm& algorithm = selector_->choose(call);
  hooks_ = nullptr;
  if (algorithm.prepare != nullptr) algorithm.prepare(*context_, call);
}

/// By an algorithm of GPUs that has been prepared.
void GpuDomain::launchNative(const Collective& collective, const GpuTarget& target) {
  std::get<GpuAlgorithm>(selector_->choose(collective).run)(*context_, collective, target);
}

/// The algorithm that somebody wants for it; null if nobody does.
const std::string* GpuDomain::wantedFor(CollectiveKind kind, const CallHints* hints) const {
  const auto [own, communicators] = hintsOf(hints, control_.hint());
  for (const Preferences* preferences : {own, communicators, &user_}) {
    if (preferences == nullptr) continue;
    if (const std::string* name = preferences->of(kind)) return name;
  }
  return nullptr;
}

std::shared_ptr<PersistentCopy> GpuDomain::prepare(CollectiveKind kind, std::byte* output,
                                                   size_t bytes, std::chrono::nanoseconds timeout,
                                                   WaitHooks* hooks) {
  if (control_.size() == 1 || isThroughHost()) return nullptr;
  const gpu::RelaxedCapture relaxed(runtime_);
  if (!persistent_) persistent_.emplace(memory_, symmetric_, device_);
  const CallHints* hints = control_.standingHints().get();
  const std::string* const name = wantedFor(kind, hints);
  const bool wanted = name != nullptr ? *name == CopyEngines::kName
                                      : bytes >= kLeastPersistentBlock * control_.size();
  return persistent_->prepare(kind, output, bytes, wanted, std::min(timeout, kMostRegistration),
                              [&](const PersistentCopies::Offer& own) {
                                return exchangeAll(control_, own, timeout, hooks);
                              });
}

uint64_t GpuDomain::launch(const Collective& collective, const GpuTarget& target,
                           WaitHooks* hooks) {
  if (control_.standingHints() && !collective.hints) [[unlikely]] {
    Collective hinted = collective;
    hinted.hints = control_.standingHints();
    return launch(hinted, target, hooks);
  }
  validate(collective, control_.rank(), control_.size());
  if (collective.persistent) {
    const GpuControlBlock& block = memory_.controlBlock(control_.rank());
    persistent_->validate(collective, block.issued.load(std::memory_order_relaxed) + 1);
  }
  if (auto plan = selector_->choosePlan(collective)) [[unlikely]] {
    Collective planned = collective;
    planned.plan = std::move(plan);
    return issue(planned, target, hooks);
  }
  return issue(collective, target, hooks);
}

uint64_t GpuDomain::announce(const Collective& collective) {
  GpuControlBlock& block = memory_.controlBlock(control_.rank());
  const uint64_t number = block.issued.load(std::memory_order_relaxed) + 1;
  signature_ = extendSignature(signature_, collective);
  block.operations.begin(makeRecord(collective, number, signature_));
  block.issued.store(number, std::memory_order_release);
  return number;
}

uint64_t GpuDomain::issue(const Collective& collective, const GpuTarget& target, WaitHooks* hooks) {
  GpuControlBlock& block = memory_.controlBlock(control_.rank());
  const uint64_t number = block.issued.load(std::memory_order_relaxed) + 1;
  const uint64_t signature = extendSignature(signature_, collective);
  block.operations.begin(makeRecord(collective, number, signature));
  const Algorithm* const algorithm =
      collective.plan || collective.persistent ? nullptr : &selector_->choose(collective);
  // Before it waits for the others, who have to see if they call something else.
  if (collective.plan || (algorithm != nullptr && algorithm->preparesTogether)) {
    signature_ = signature;
    block.issued.store(number, std::memory_order_release);
  }
  if (collective.plan && collective.plan->function() != nullptr) {
    Served::say("plan:" + collective.plan->plan().name, "it is registered for it");
    launchFunction(collective, target, hooks);
  } else if (collective.plan) {
    GpuPlan& plan = setUpPlan(collective, target.blocks, hooks);
    Served::say("plan:" + collective.plan->plan().name, "a plan is registered for it");
    begin(target);
    plan.launch(collective, staging_, *context_, target);
  } else if (collective.persistent) {
    Served::say(CopyEngines::kName, "the call was prepared");
    begin(target);
    persistent_->launch(collective, staging_, target.stream);
  } else {
    Served::say(algorithm->name, selector_->why());
    hooks_ = hooks;
    if (algorithm->preparesTogether) algorithm->prepare(*context_, collective);
    begin(target);
    std::get<GpuAlgorithm>(algorithm->run)(*context_, collective, target);
  }
  order(target.stream, false);
  signature_ = signature;  // not before: what is refused does not count
  block.issued.store(number, std::memory_order_release);
  return number;
}

uint64_t GpuDomain::launchQuantized(const Collective& collective, const Quantization& quantization,
                                    const GpuTarget& target) {
  validate(collective, control_.rank(), control_.size());
  GpuControlBlock& block = memory_.controlBlock(control_.rank());
  const uint64_t number = block.issued.load(std::memory_order_relaxed) + 1;
  // Twice: it is another operation than the one that sends fp32.
  const uint64_t signature = extendSignature(extendSignature(signature_, collective), collective);
  block.operations.begin(makeRecord(collective, number, signature));
  begin(target);
  ctran::launchQuantized(*context_, collective, quantization, target);
  order(target.stream, false);
  signature_ = signature;
  block.issued.store(number, std::memory_order_release);
  return number;
}

Explanation GpuDomain::explain(CollectiveKind kind, size_t bytes, DataType type,
                               const CallHints* hints) const {
  if (hints == nullptr) hints = control_.standingHints().get();
  Explanation explanation = selector_->explain(kind, bytes, type, ReduceKind::Sum, hints);
  if (const size_t segments = symmetric_.mapped()) {
    explanation.why +=
        "; much data straight between tensors of symmetric memory, of which this rank has " +
        std::to_string(segments) + " segments, named " + std::to_string(symmetric_.found()) +
        " times";
  }
  if (isThroughHost()) explanation.why += "; through the host's memory";
  if (const size_t launched = persistent_ ? persistent_->launched() : 0) {
    explanation.why +=
        "; persistent ones by copy engines alone, " + std::to_string(launched) + " so far";
  }
  return explanation;
}

void GpuDomain::launchMessages(std::span<const Collective> messages, const GpuTarget& target) {
  for (const Collective& one : messages) validate(one, control_.rank(), control_.size());
  begin(target);
  ctran::launchMessages(*context_, staging_, messages, target);
  order(target.stream, false);
}

/// What a kernel of a broken communicator still touches has to stay.
void GpuDomain::shareMemory() {
  if (!hasFailed()) symmetric_.serve();
}

void GpuDomain::registerMemory(const void* address, size_t bytes) {
  symmetric_.await(address, bytes, std::min(control_.timeout(), kMostRegistration));
}

void GpuDomain::awaitMappings(const Collective& collective) {
  const size_t bytes =
      collective.blockBytes();  // a part of each buffer: it says which memory it is
  for (const void* const address :
       {static_cast<const void*>(collective.input), static_cast<const void*>(collective.output)}) {
    if (bytes == 0 || address == nullptr) continue;
    if (DeviceSegment::find(address, bytes)) {
      symmetric_.find(address, bytes, /*patient=*/true);
    } else if (!std::exchange(toldOfMemory_, true)) {
      log(LogComponent::Gpu, LogLevel::Warn,
          "%s: the buffer at %p is said to be symmetric, but other ranks cannot map it, so its "
          "data "
          "is copied: allocate it with RawGpuBuffer, or in a memory pool of torchcomms",
          std::string(ctran::nameOf(collective.kind)).c_str(), address);
    }
  }
}

GpuDomain::~GpuDomain() {
  if (!context_ || !any_ || !control_.core().belongsHere()) return;
  try {
    const auto until = std::chrono::steady_clock::now() + kDomainEndPatience;
    while (!runtime_.isReached(last_.get())) {
      stop();
      if (std::chrono::steady_clock::now() >= until) {
        log(LogComponent::Gpu, LogLevel::Warn, "a kernel of communicator '%s' does not end",
            control_.name().c_str());
        break;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  } catch (const Error&) {  // the device is lost, or the driver has gone before us
  }
}

}  // namespace ctran
