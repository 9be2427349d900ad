#include "ctran/select/selector.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <span>

#include "ctran/base/error.h"
#include "ctran/base/sha256.h"
#include "ctran/collective/alone.h"
#include "ctran/collective/gpu/kernels.h"
#include "ctran/collective/plan/run.h"

namespace ctran {
namespace {

constexpr const char* kOnlyNamed = "where it is named";
constexpr std::string_view kPlanPrefix = "plan:";

std::string inMicros(double us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g µs", us);
  return text;
}

}  // namespace

std::string whyMeasured(size_t bytes, double us) {
  return "the fastest at " + std::to_string(bytes) + " bytes when this machine was tuned, " +
         inMicros(us);
}

std::string whyPredicted(double us) { return "the fastest by the cost model, " + inMicros(us); }

Selector::Selector(int size) : size_(size) { find(AlgorithmPlace::SharedMemory); }

Selector::Selector(const HostMap& map) : size_(map.size()), map_(map) {
  if (map.isShared()) find(AlgorithmPlace::Hosts);
  find(AlgorithmPlace::Network);
}

Selector::Selector(const HostMap& domains, AlgorithmPlace place)
    : size_(domains.size()), map_(domains) {
  find(place);
}

Selector::Selector(int size, const GpuLimits& gpus) : size_(size), gpus_(gpus) {
  find(AlgorithmPlace::Gpus);
}

void Selector::find(AlgorithmPlace place) {
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const auto found = algorithmsOf(place, static_cast<CollectiveKind>(kind));
    algorithms_[kind].insert(algorithms_[kind].end(), found.begin(), found.end());
  }
}

const Selector::Algorithms& Selector::algorithmsFor(CollectiveKind kind) const {
  static const Algorithms none;
  const auto k = static_cast<size_t>(kind);
  return k < kKinds ? algorithms_[k] : none;
}

void Selector::prefer(Preferences hint, Preferences user, bool inRankOrder) {
  hint_ = std::move(hint);
  user_ = std::move(user);
  inRankOrder_ = inRankOrder;
  forget();
}

void Selector::prefer(const std::map<std::string, std::string>& hints) {
  prefer(hintedPreferences(hints), userPreferences(), wantsRankOrder(hints));
}

uint64_t Selector::hash() const {
  const std::string text = hint_.text() + ";" + user_.text() + (inRankOrder_ ? ";rank_order" : "");
  const Digest digest = Sha256().add(std::as_bytes(std::span(text))).finish();
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

void Selector::use(TuningTable table) {
  table_ = std::move(table);
  forget();
}

void Selector::useReading(std::string whyNot, bool pays) {
  readingPays_ = pays && whyNot.empty();
  whyNotReading_ = std::move(whyNot);
  forget();
}

AlgorithmQuery Selector::queryOf(const Call& call) const {
  AlgorithmQuery query{call.kind, call.bytes, size_};
  query.partialSums = call.partialSums;
  query.reachesGpus = reachesGpus_;
  if (gpus_) {
    query.gpus = &*gpus_;
    query.element = call.element;
    query.largest = call.largest;
  }
  if (map_) {
    query.map = &*map_;
    query.sharing = (size_ + map_->hosts() - 1) / map_->hosts();
  }
  return query;
}

Selector::Call Selector::callOf(CollectiveKind kind, size_t bytes, bool partialSums,
                                const CallHints* hints) const {
  if (hints == nullptr) return {kind, bytes, partialSums, inRankOrder_, 0};
  const bool inRankOrder = hints->inRankOrder || (inRankOrder_ && !hints->alone);
  return {kind, bytes, partialSums, inRankOrder, hints->hash};
}

Selector::Call Selector::gpuCallOf(const Collective& c) const {
  // Of rows only their senders know how many there are.
  const size_t bytes = c.kind == CollectiveKind::AllToAllVDynamic ? 0 : contributionBytes(c, size_);
  Call call = callOf(c.kind, bytes, true, c.hints.get());
  if (isReduction(c.kind)) call.element = deviceReduction(c.type, c.op.kind).elementBytes;
  call.largest = c.kind == CollectiveKind::Barrier ? 0 : c.blockBytes();
  if (c.kind == CollectiveKind::AllGatherV) call.largest = call.bytes;
  for (const Block& block : c.inputs) {
    if (c.kind != CollectiveKind::ReduceScatterV) break;
    call.largest = std::max(call.largest, block.count * sizeOf(c.type));
  }
  return call;
}

std::string Selector::whyNot(const Algorithm& algorithm, const Call& call, bool named) const {
  if (algorithm.readsPeers && !whyNotReading_.empty()) return whyNotReading_;
  if (std::string why = algorithm.whyNot(queryOf(call)); !why.empty()) return why;
  if (!algorithm.sumsPartially) return {};
  if (call.inRankOrder) return "the hint ctran::deterministic asks for the order of the ranks";
  if (call.partialSums || named) return {};
  return "its partial sums would be rounded to few digits; name it to have it all the same";
}

std::vector<std::string> Selector::candidates(CollectiveKind kind, size_t bytes) const {
  std::vector<std::string> names;
  const Call call = callOf(kind, bytes, true, nullptr);
  for (const Algorithm* algorithm : algorithmsFor(kind)) {
    if (whyNot(*algorithm, call, false).empty()) names.emplace_back(algorithm->name);
  }
  const PlanCall planned = planCallOf(call);
  for (const RegisteredPlan& plan : registeredPlans()) {
    const bool known = std::find(names.begin(), names.end(), plan.name) != names.end();
    if (!known && !plan.algorithm->plan().open && whyNot(plan, planned).empty())
      names.push_back(plan.name);
  }
  return names;
}

void Selector::force(CollectiveKind kind, std::string_view name) {
  forced_ = nullptr;
  forcedPlan_ = name.starts_with(kPlanPrefix) ? name : "";
  forcedKind_ = kind;
  for (const Algorithm* algorithm : algorithmsFor(kind)) {
    if (algorithm->name == name) forced_ = algorithm;
  }
  forget();
}

const Algorithm& Selector::choose(const Collective& c) {
  if (size_ == 1 && !gpus_) return aloneAlgorithm();
  const CallHints* const hints = c.hints.get();
  const bool partialSums = !map_ || toleratesPartialSums(c);  // on one host there are none
  const Call call =
      gpus_ ? gpuCallOf(c) : callOf(c.kind, contributionBytes(c, size_), partialSums, hints);
  const size_t kind = static_cast<size_t>(c.kind) << 1 | (partialSums ? 1 : 0);
  const uint64_t place = (call.bytes * 0x9e3779b97f4a7c15 >> 40) ^ kind ^ call.hints;
  Decision& known = decisions_[place % decisions_.size()];
  if (known.algorithm == nullptr || known.call != call) {
    std::string why;
    const Algorithm* const algorithm = decide(call, hints, &why);
    known = {algorithm, call, std::move(why)};
    if (recording_ != nullptr) known.recorded = recording_->choice(algorithm->name, known.why);
  }
  recorded_ = known.recorded;
  why_ = known.why;
  return *known.algorithm;
}

const Algorithm* Selector::decide(const Call& call, const CallHints* hints,
                                  std::string* why) const {
  const Algorithms& algorithms = algorithmsFor(call.kind);
  const auto find = [&](std::string_view name, bool named) -> const Algorithm* {
    for (const Algorithm* algorithm : algorithms) {
      if (algorithm->name == name && whyNot(*algorithm, call, named).empty()) return algorithm;
    }
    return nullptr;
  };
  const auto because = [&](const Algorithm* algorithm, const std::string& reason) {
    if (why != nullptr) *why = reason;
    return algorithm;
  };
  if (forced_ != nullptr && forcedKind_ == call.kind && whyNot(*forced_, call, false).empty()) {
    return because(forced_, kBeingMeasured);
  }
  for (const Preferences* wanted : hintsOf(hints, hint_)) {
    if (wanted == nullptr) continue;
    for (const std::string_view name : wanted->namesFor(call.kind)) {
      if (const auto* algorithm = find(name, true)) return because(algorithm, kByHint);
    }
    if (gpus_) refuse(call, *wanted, kByHint);
  }
  for (const std::string_view name : user_.namesFor(call.kind)) {
    if (const auto* algorithm = find(name, true)) return because(algorithm, kByUser);
  }
  if (gpus_) refuse(call, user_, kByUser);
  if (const TuningTable::Entry* entry = table_.find(call.kind, call.bytes)) {
    for (const auto& [name, us] : entry->micros) {
      if (const auto* algorithm = find(name, false)) {
        return because(algorithm, whyMeasured(entry->bytes, us));
      }
    }
  }
  if (gpus_) return decideBySize(call, why);
  const Algorithm* best = nullptr;
  double least = 0;
  for (const Algorithm* algorithm : algorithms) {
    if (algorithm->readsPeers && !readingPays_) continue;
    if (!whyNot(*algorithm, call, false).empty()) continue;
    const double us = algorithm->micros(queryOf(call));
    if (best != nullptr && us >= least) continue;
    best = algorithm;
    least = us;
  }
  return because(best, whyPredicted(least));
}

/// The one with the narrowest range of sizes that holds.
const Algorithm* Selector::decideBySize(const Call& call, std::string* why) const {
  const AlgorithmQuery query = queryOf(call);
  const Algorithm* best = nullptr;
  SizeRange narrowest;
  for (const Algorithm* algorithm : algorithmsFor(call.kind)) {
    if (algorithm->sizes == nullptr || !algorithm->whyNot(query).empty()) continue;
    const SizeRange range = algorithm->sizes(query);
    if (!range.holds() || (best != nullptr && range.width() >= narrowest.width())) continue;
    best = algorithm;
    narrowest = range;
  }
  if (best == nullptr) {
    throw Error(ErrorKind::Unsupported, "GPUs have no " + std::string(nameOf(call.kind)));
  }
  if (why != nullptr) *why = "by size, " + narrowest.text() + " as measured on H200";
  return best;
}

/// Throws Error(InvalidArgument) if somebody wants an algorithm for it; none of those can serve.
void Selector::refuse(const Call& call, const Preferences& wanted, const char* source) const {
  for (const std::string_view name : wanted.namesFor(call.kind)) {
    std::string why;
    for (const Algorithm* algorithm : algorithmsFor(call.kind)) {
      if (algorithm->name == name) why = whyNot(*algorithm, call, true);
    }
    const bool meant = wanted.names(call.kind, name) || !isAlgorithm(AlgorithmPlace::Gpus, name);
    if (why.empty() && !meant) continue;  // for other collectives
    if (why.empty() && isAlgorithm(AlgorithmPlace::GpuHosts, name)) continue;  // of several hosts
    const std::string op(nameOf(call.kind));
    if (name.starts_with(kPlanPrefix)) {
      const RegisteredPlans& plans = registeredPlans();
      const auto plan = std::find_if(plans.begin(), plans.end(), [name](const RegisteredPlan& one) {
        return one.name == name;
      });
      if (plan == plans.end()) {
        why = "no plan of that name is registered";
      } else if (plan->algorithm->plan().kind != call.kind && !wanted.names(call.kind, name)) {
        continue;  // for another collective
      } else {
        why = whyNot(*plan, planCallOf(call));
      }
    }
    if (why.empty()) why = "GPUs have no such algorithm of it";
    throw Error(ErrorKind::InvalidArgument,
                std::string(source) + " asks for the algorithm '" + std::string(name) + "' of " +
                    op + ", which cannot serve this call: " + why,
                {}, op,
                "there are " + algorithmNames(AlgorithmPlace::Gpus, &call.kind) +
                    "; comm.explain says what each can serve");
  }
}

Explanation Selector::explain(CollectiveKind kind, size_t bytes, DataType type, ReduceKind op,
                              const CallHints* hints) const {
  Call call = callOf(kind, bytes, true, hints);
  if (isReduction(kind)) call.element = deviceReduction(type, op).elementBytes;
  const bool inBlocks = kind == CollectiveKind::ReduceScatter || kind == CollectiveKind::Scatter ||
                        kind == CollectiveKind::ReduceScatterV || kind == CollectiveKind::AllToAll;
  call.largest = inBlocks ? bytes / size_ : bytes;
  PlanCall planned = planCallOf(call);
  planned.type = type;
  planned.op = op;
  return explain(planned, hints);
}

Selector::PlanCall Selector::planCallOf(const Call& call) const {
  return {call, static_cast<size_t>(queryOf(call).block()),
          call.partialSums ? DataType::Float32 : DataType::BFloat16, ReduceKind::Sum};
}

std::string Selector::whyNot(const RegisteredPlan& plan, const PlanCall& call) const {
  if (!communicator_ || !plan.isFor(*communicator_, call.blockBytes)) {
    return "it is registered for other calls";
  }
  const UserFunction* const function = plan.algorithm->function();
  if (function != nullptr && function->onGpus != gpus_.has_value()) {
    return function->onGpus ? "it serves GPUs that reach each other's memory alone"
                            : "it serves memory of the host alone";
  }
  Collective c;
  c.kind = call.call.kind;
  c.type = call.type;
  c.op.kind = call.op;
  c.count = call.blockBytes / sizeOf(call.type);
  if (std::string why = plan.algorithm->whyNot(c, size_); !why.empty()) return why;
  if (call.call.inRankOrder && isReduction(c.kind) && !plan.algorithm->properties().rankOrder) {
    return "the hint ctran::deterministic asks for the order of the ranks";
  }
  if (map_ && !canSpanHosts(*plan.algorithm, c)) return "it cannot span hosts";
  return whyNotPlan_ ? whyNotPlan_(*plan.algorithm, c) : std::string();
}

std::shared_ptr<const PlanAlgorithm> Selector::planFor(const Collective& c) {
  // Those behind it, messages among them, are nothing that a plan describes.
  if (size_ == 1 || c.kind > CollectiveKind::AllToAllV) return nullptr;
  const PlanCall call{
      callOf(c.kind, contributionBytes(c, size_), !map_ || toleratesPartialSums(c), c.hints.get()),
      c.blockBytes(), c.type, c.op.kind};
  const uint64_t version = planVersion();
  const uint64_t place = (call.blockBytes * 0x9e3779b97f4a7c15 >> 40) ^
                         static_cast<uint64_t>(c.kind) ^ call.call.hints;
  PlanDecision& known = planDecisions_[place % planDecisions_.size()];
  if (known.version != version || known.call != call) {
    const RegisteredPlan* const plan = decidePlan(call, c.hints.get(), nullptr);
    known = {version, call, plan != nullptr ? plan->algorithm : nullptr};
  }
  return known.plan;
}

const RegisteredPlan* Selector::decidePlan(const PlanCall& call, const CallHints* hints,
                                           std::string* why) const {
  const RegisteredPlans& plans = registeredPlans();
  const CollectiveKind kind = call.call.kind;
  const bool isNamed = hints != nullptr && hints->preferences.of(kind) != nullptr;
  const bool openPlans = hints != nullptr && hints->openPlans;
  const auto find = [&](const auto& matches, const std::string& reason) -> const RegisteredPlan* {
    for (const RegisteredPlan& plan : plans) {
      if (plan.algorithm->plan().open && !openPlans) continue;
      if (!matches(plan) || !whyNot(plan, call).empty()) continue;
      if (why != nullptr) *why = reason;
      return &plan;
    }
    return nullptr;
  };
  const auto named = [&](std::string_view name, const std::string& reason) {
    return find([name](const RegisteredPlan& plan) { return plan.name == name; }, reason);
  };
  const auto wanted = [&](const Preferences& preferences, const char* reason) {
    const RegisteredPlan* plan = nullptr;
    for (const std::string_view name : preferences.namesFor(kind)) {
      if (plan == nullptr) plan = named(name, reason);
    }
    return plan;
  };
  if (forcedKind_ == kind && (forced_ != nullptr || !forcedPlan_.empty())) {
    return forcedPlan_.empty() ? nullptr : named(forcedPlan_, kBeingMeasured);
  }
  if (isNamed) return wanted(hints->preferences, kByHint);
  if (const auto* plan = find([](const RegisteredPlan& plan) { return plan.use.preferred; },
                              "a plan is preferred for it")) {
    return plan;
  }
  const bool alone = hints != nullptr && hints->alone;
  if (!alone && hint_.of(kind) != nullptr) return wanted(hint_, kByHint);
  if (user_.of(kind) != nullptr) return wanted(user_, kByUser);
  const TuningTable::Entry* const entry = table_.find(kind, call.call.bytes);
  if (entry == nullptr) return nullptr;
  for (const auto& [name, us] : entry->micros) {
    if (const auto* plan = named(name, whyMeasured(entry->bytes, us))) return plan;
    for (const Algorithm* native : algorithmsFor(kind)) {
      if (native->name == name && whyNot(*native, call.call, false).empty()) return nullptr;
    }
  }
  return nullptr;
}

Explanation Selector::explain(CollectiveKind kind, size_t bytes, bool partialSums,
                              const CallHints* hints, std::optional<DataType> type) const {
  Explanation explanation;
  if (size_ == 1) {
    explanation.algorithm = aloneAlgorithm().name;
    explanation.why = "there is one rank";
    return explanation;
  }
  PlanCall planned = planCallOf(callOf(kind, bytes, partialSums, hints));
  planned.type = type.value_or(planned.type);
  return explain(planned, hints);
}

Explanation Selector::explain(const PlanCall& planned, const CallHints* hints) const {
  const Call& call = planned.call;
  Explanation explanation;
  const RegisteredPlan* const chosen =
      communicator_ ? decidePlan(planned, hints, &explanation.why) : nullptr;
  explanation.algorithm =
      chosen != nullptr ? chosen->name : decide(call, hints, &explanation.why)->name;
  const TuningTable::Entry* entry = table_.find(call.kind, call.bytes);
  for (const Algorithm* one : algorithmsFor(call.kind)) {
    Explanation::Alternative alternative;
    alternative.algorithm = one->name;
    // What the user has named is no question any more.
    alternative.whyNot = whyNot(*one, call, one->name == explanation.algorithm);
    if (one->micros != nullptr) alternative.predicted = one->micros(queryOf(call));
    if (gpus_) alternative.sizes = one->sizes ? one->sizes(queryOf(call)).text() : kOnlyNamed;
    if (entry != nullptr) {
      for (const auto& [name, us] : entry->micros) {
        if (name == one->name) alternative.measured = us;
      }
    }
    explanation.alternatives.push_back(std::move(alternative));
  }
  if (!communicator_) return explanation;  // no plans compete
  for (const RegisteredPlan& plan : registeredPlans()) {
    if (plan.algorithm->plan().kind != call.kind) continue;
    Explanation::Alternative alternative;
    alternative.algorithm = plan.name;
    alternative.whyNot = whyNot(plan, planned);
    for (const auto& [name, us] : entry != nullptr ? entry->micros : decltype(entry->micros){}) {
      if (name == plan.name) alternative.measured = us;
    }
    explanation.alternatives.push_back(std::move(alternative));
  }
  return explanation;
}

Json Explanation::toJson() const {
  Json all = Json::array();
  for (const Alternative& one : alternatives) {
    Json entry = Json::object();
    entry.set("algorithm", Json(one.algorithm))
        .set("predicted_us", one.predicted ? Json(*one.predicted) : Json());
    entry.set("measured_us", one.measured ? Json(*one.measured) : Json());
    entry.set("why_not", Json(one.whyNot)).set("sizes", Json(one.sizes));
    all.push(std::move(entry));
  }
  Json json = Json::object();
  json.set("algorithm", Json(algorithm)).set("why", Json(why));
  json.set("alternatives", std::move(all));
  if (!network.empty()) {
    Json paths = Json::array();
    for (const std::string& path : network) paths.push(Json(path));
    json.set("network", std::move(paths));
  }
  return json;
}

}  // namespace ctran
