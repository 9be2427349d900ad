#include "ctran/engine/gpu_hosts.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "ctran/base/config.h"
#include "ctran/base/rank_list.h"
#include "ctran/base/text.h"
#include "ctran/collective/gpu/hosts_call.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/gpu/device/team.cuh"
#include "ctran/trace/served.h"

namespace ctran {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kLeastHostsStep = 1 << 16;
const ConfigInt kHostsStepBytes{
    "CTRAN_GPU_HOSTS_STEP_BYTES", 4 << 20,
    "Bytes that a GPU has between domains, on several hosts, at a time. An operation takes up to "
    "four times that of the host's memory, page-locked. The least of all ranks counts.",
    kLeastHostsStep, 1 << 30};

/// Grace periods beyond the deadline. The party that can name the culprit reports first: the
/// domain, if some of its ranks have not called; then the network, which knows the rank of another
/// domain; then kernels, which may wait for a neighbour that itself waits.
constexpr std::chrono::seconds kNetworkGrace{1};
constexpr std::chrono::seconds kKernelGrace{3};

HostMap domainsOf(const Communicator& control) {
  std::vector<int> hosts;
  for (int r = 0; r < control.size(); ++r) hosts.push_back(control.map().hostOf(r));
  return {hosts, control.rank(), static_cast<int>(device::kMaxRanks)};
}

bool isIdle(gpu::Stream stream) {
  const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));  // of another stream
  return gpu::Driver::get().streamQuery(stream) == gpu::kSuccess;
}

/// Collectives and messages in memory of the host, on the proxy's thread.
void runBetween(Communicator& network, const std::vector<Collective>& between,
                std::chrono::nanoseconds timeout) {
  std::vector<std::shared_ptr<Work>> works;
  for (const Collective& given : between) {
    Collective c = given;
    if (c.op.factorAt != nullptr) c.op.factor = *std::exchange(c.op.factorAt, nullptr);
    const bool isMessage = c.kind == CollectiveKind::Send || c.kind == CollectiveKind::Recv;
    if (isMessage) {
      works.push_back(network.post(std::move(c), timeout));
    } else {
      network.run(c, timeout);
    }
  }
  if (!works.empty()) Work::finish(works, nullptr);
}

}  // namespace

class GpuHosts::Call final : public GpuHostsCall {
 public:
  Call(GpuHosts& hosts, const GpuTarget& target, milliseconds timeout)
      : GpuHostsCall(hosts.network_->map(), hosts.control_.rank(), hosts.stepBytes_),
        hosts_(hosts),
        target_(target),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        captured_(gpu::Runtime::of(gpu::Platform::Cuda).isCapturing(target.stream)),
        isIdle_(!captured_ && isIdle(target.stream)) {
    target_.timeout = timeout + kKernelGrace;
  }

  void inDomain(const Collective& collective) override {
    Collective plain = collective;
    plain.hints = nullptr;
    plain.plan = nullptr;
    plain.persistent = nullptr;
    hosts_.domain_->launch(plain, target_);
  }

  Staging stage(size_t bytes) override {
    staging_ = hosts_.staging(bytes);
    return {static_cast<std::byte*>(staging_->host()),
            reinterpret_cast<std::byte*>(staging_->device())};
  }

  Staging stageOnRail(size_t bytes) override {
    if (!hosts_.direct_) return stage(bytes);
    direct_ = hosts_.direct_;
    std::byte* const area = direct_->area(bytes);
    return {area, area};
  }

  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    gpu::copyAsync(gpu::addressOf(to), gpu::addressOf(from), bytes, target_.stream);
  }

  size_t start(std::vector<Collective> between) override {
    // The memory stays until the step has ended, also if the call fails meanwhile.
    auto work = [network = hosts_.network_, between = std::move(between), memory = staging_,
                 direct = direct_, deadline = deadline_, timeout = timeout_, captured = captured_] {
      std::chrono::nanoseconds left = captured ? timeout : deadline - Clock::now();
      left = std::max<std::chrono::nanoseconds>(left, milliseconds(1)) + kNetworkGrace;
      if (!direct) return runBetween(*network, between, left);
      for (const Collective& each : between) direct->run(each, left);
    };
    steps_.push_back(hosts_.proxy_->makeStep(std::move(work), captured_));
    hosts_.proxy_->handOver(*steps_.back(), target_.stream, isIdle_);
    return steps_.size() - 1;
  }

  void await(size_t started) override { hosts_.proxy_->await(*steps_[started], target_.stream); }

  /// What a graph has to keep; null if there is no graph.
  std::shared_ptr<void> kept() {
    using Kept = std::pair<std::vector<std::shared_ptr<HostProxy::Step>>,
                           std::shared_ptr<gpu::MappedHostMemory>>;
    return captured_ ? std::make_shared<Kept>(std::move(steps_), std::move(staging_)) : nullptr;
  }

 private:
  GpuHosts& hosts_;
  GpuTarget target_;
  const milliseconds timeout_;
  const Clock::time_point deadline_;
  const bool captured_;
  const bool isIdle_;  // the stream, when the operation was called
  std::vector<std::shared_ptr<HostProxy::Step>> steps_;
  std::shared_ptr<gpu::MappedHostMemory> staging_;
  std::shared_ptr<GpuDirect> direct_;  // if its area is what was staged
};

bool GpuHosts::areFor(const Communicator& control) {
  return control.spansHosts() || control.size() > static_cast<int>(device::kMaxRanks);
}

GpuHosts::GpuHosts(Communicator& control, int device) : control_(control), device_(device) {}

std::unique_ptr<GpuHosts> GpuHosts::create(Communicator& control, int device, WaitHooks* hooks,
                                           GpuFallback fallback) {
  if (fallback == GpuFallback::None) {
    throw Error(ErrorKind::Unsupported, "communicator '" + control.name() + "' has " +
                                            std::to_string(control.size()) + " ranks" +
                                            (control.spansHosts() ? " on several hosts" : "") +
                                            "; without the memory of hosts there are up to " +
                                            std::to_string(device::kMaxRanks) + ", of one host");
  }
  std::unique_ptr<GpuHosts> made(new GpuHosts(control, device));
  made->connect(hooks, fallback);
  announceExplainer(control.token(),
                    std::shared_ptr<Explainer>(control.shared_from_this(), made.get()));
  return made;
}

GpuHosts::~GpuHosts() {
  if (!domain_ || !control_.core().belongsHere()) return;
  try {
    const auto until = Clock::now() + kKernelGrace;
    while (!domain_->isIdle() && Clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  } catch (const Error&) {  // the device is lost, or the driver has gone before us
  }
}

void GpuHosts::connect(WaitHooks* hooks, GpuFallback fallback) {
  userPreferences().checkPlaces({AlgorithmPlace::Gpus, AlgorithmPlace::GpuHosts}, "GPUs");
  const HostMap domains = domainsOf(control_);
  const std::string& name = control_.name();
  std::vector<int> all, numbers;
  for (int r = 0; r < control_.size(); ++r) {
    all.push_back(r);
    numbers.push_back(domains.hostOf(r));
  }
  near_ = control_.splitPart(domains.local(), name + "/domain", {.gpus = true}, hooks);
  network_ = control_.splitPart(all, name + "/network", {.hosts = numbers}, hooks);
  stepBytes_ = static_cast<size_t>(kHostsStepBytes.get());
  std::optional<Error> failure;
  try {
    domain_ = GpuDomain::create(*near_, device_, hooks, fallback, domains.local());
    const gpu::DeviceGuard guard(device_);
    proxy_.emplace(device_, network_->core().spinNanos,
                   [weak = control_.weak_from_this()](const Error& error) {
                     if (const auto control = weak.lock()) control->breakWith(error);
                   });
  } catch (const Error& error) {
    failure = error;
  }
  // A rank of another domain does not learn otherwise that this one cannot take part.
  struct Said {
    size_t stepBytes;
    ErrorKind kind;
    bool failed;
    char why[480];
  };
  Said own{stepBytes_, failure ? failure->kind() : ErrorKind::System, failure.has_value(), {}};
  if (failure) copyText(own.why, failure->what());
  const auto said = exchangeAll(control_, own, {}, hooks);
  if (failure) throw Error(*failure);
  for (int r = 0; r < control_.size(); ++r) {
    stepBytes_ = std::max(std::min(stepBytes_, said[r].stepBytes), kLeastHostsStep);
    if (!said[r].failed) continue;
    const std::string why(boundedText(said[r].why));
    throw Error(said[r].kind, "rank " + std::to_string(r) + " cannot take part: " + why, {r},
                "new_comm");
  }
  direct_ = GpuDirect::create(network_, device_, stepBytes_, hooks, whyNotDirect_);
  selector_.emplace(network_->map(), AlgorithmPlace::GpuHosts);
  if (direct_) selector_->useGpuDirect();
  selector_->prefer(control_.hint(), userPreferences(), control_.sumsInRankOrder());
  selector_->usePlans(name);
}

/// Operations of the communicator run one after the other: one memory serves all, and those that
/// graphs have keep theirs.
std::shared_ptr<gpu::MappedHostMemory> GpuHosts::staging(size_t bytes) {
  if (domain_->isIdle()) outgrown_.clear();
  if (bytes <= stagingBytes_) return staging_;
  const gpu::RelaxedCapture relaxed(gpu::Runtime::of(gpu::Platform::Cuda));
  if (staging_) outgrown_.push_back(staging_);
  staging_ = std::make_shared<gpu::MappedHostMemory>(device_, bytes);
  stagingBytes_ = bytes;
  return staging_;
}

template <class Body>
void GpuHosts::compose(const GpuTarget& target, milliseconds timeout, std::shared_ptr<void>& kept,
                       const Body& body) {
  try {
    domain_->order(target.stream, true);
    Call call(*this, target, timeout);
    body(call);
    domain_->order(target.stream, false);
    kept = call.kept();
  } catch (const Error& error) {  // some of it is on the stream
    fail(error);
    throw;
  }
}

uint64_t GpuHosts::launch(const Collective& collective, const GpuTarget& target,
                          milliseconds timeout, std::shared_ptr<void>& kept) {
  if (control_.standingHints() && !collective.hints) {
    Collective hinted = collective;
    hinted.hints = control_.standingHints();
    return launch(hinted, target, timeout, kept);
  }
  validate(collective, control_.rank(), control_.size());
  if (auto plan = selector_->choosePlan(collective)) {
    // Plans run over the network, which runs plans of any number of hosts.
    Collective planned = collective;
    planned.plan = std::move(plan);
    const uint64_t number = domain_->announce(planned);
    compose(target, timeout, kept, [&](Call& call) { passThroughHost(call, {planned}); });
    Served::say("plan:" + planned.plan->plan().name, "a plan is registered for it");
    return number;
  }
  const Algorithm& algorithm = selector_->choose(collective);
  const uint64_t number = domain_->announce(collective);
  compose(target, timeout, kept,
          [&](Call& call) { std::get<GpuHostsAlgorithm>(algorithm.run)(call, collective); });
  Served::say(algorithm.name, selector_->why());  // over what domains have said of their parts
  return number;
}

void GpuHosts::launchMessages(std::span<const Collective> messages, const GpuTarget& target,
                              milliseconds timeout, std::shared_ptr<void>& kept) {
  for (const Collective& one : messages) validate(one, control_.rank(), control_.size());
  if (messages.empty()) return;
  compose(target, timeout, kept, [&](Call& call) {
    passThroughHost(call, {messages.begin(), messages.end()});
  });
}

Explanation GpuHosts::explain(CollectiveKind kind, size_t bytes, DataType type,
                              const CallHints* hints) const {
  if (hints == nullptr) hints = control_.standingHints().get();
  Explanation explanation =
      selector_->explain(kind, bytes, toleratesPartialSums(type, ReduceKind::Sum), hints);
  explanation.why += "; GPUs in domains of ranks ";
  const HostMap& domains = network_->map();
  for (int d = 0; d < domains.hosts(); ++d) {
    explanation.why += (d == 0 ? "" : " | ") + listed(domains.ranks(d));
  }
  if (movesOnRails(kind) && direct_) {
    const std::string devices = direct_->devices();
    explanation.why += "; between domains rails go from GPU to GPU by RDMA";
    if (!devices.empty()) explanation.why += " (" + devices + ")";
  } else if (movesOnRails(kind)) {
    explanation.why += "; between domains through the host's memory: " + whyNotDirect_;
  }
  explanation.network = network_->explain(kind, bytes, type).network;
  return explanation;
}

/// Kernels of a reduction are compiled for it.
void GpuHosts::prepareCall(CollectiveKind kind, size_t bytes, DataType type, ReduceKind op,
                           std::shared_ptr<const CallHints>) {
  if (!isReduction(kind)) return;
  if (op == ReduceKind::Avg) op = ReduceKind::Sum;
  domain_->prepareCall(CollectiveKind::ReduceScatter, bytes, type, op, nullptr);
}

void GpuHosts::setTimeout(std::chrono::nanoseconds timeout) {
  network_->setTimeout(timeout);
  near_->setTimeout(timeout);
  domain_->setTimeout(timeout + kKernelGrace);
}

bool GpuHosts::hasFailed() const {
  return control_.hasFailed() || network_->core().failed() || domain_->hasFailed();
}

std::optional<Error> GpuHosts::trouble() {
  for (Communicator* one : {&control_, network_.get()}) {
    if (!one->hasFailed()) continue;  // which hears what other hosts have said
    try {
      one->core().throwIfFailed();
    } catch (const Error& error) {
      return error;
    }
  }
  // A death, of which `control_` hears in a moment, in the numbers of all ranks.
  if (near_->core().failed()) return std::nullopt;
  return domain_->trouble();
}

void GpuHosts::fail(const Error& error) {
  proxy_->stop();
  control_.breakWith(error);
  network_->breakWith(error);
  domain_->fail(error);
}

bool GpuHosts::othersSpeakFirst(uint64_t number, std::chrono::nanoseconds late) const {
  if (number != 0 && !domain_->missing(number).empty()) return false;
  return late < kKernelGrace;
}

}  // namespace ctran
