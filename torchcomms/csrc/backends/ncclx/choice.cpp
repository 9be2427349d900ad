#include "torchcomms/csrc/backends/ncclx/choice.hpp"

#include "ctran/base/error.h"

namespace torch::comms::ncclx {

namespace {

using ctran::CollectiveKind;
using ctran::Explanation;
using ctran::Members;

constexpr const char* kEngineName = "ctran";
constexpr const char* kVendorName = "nccl";
constexpr const char* kHint = "ncclx::member";

bool isVendor(const std::string& member, const std::string& who) {
  if (member == kVendorName) return true;
  if (member == kEngineName) return false;
  throw ctran::Error(ctran::ErrorKind::InvalidArgument,
                     who + " is '" + member + "'; it can be ctran or nccl");
}

bool hasChoice(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllReduce:
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::AllGather:
    case CollectiveKind::AllToAll:
    case CollectiveKind::Broadcast:
      return true;
    default:
      return false;
  }
}

}  // namespace

Choice::Choice(std::string noEngine, std::string noVendor, std::string machine, int ranks)
    : noEngine_(std::move(noEngine)),
      noVendor_(std::move(noVendor)),
      machine_(std::move(machine)),
      ranks_(ranks) {}

bool Choice::asksForEngine(const ctran::CallHints* hints, CollectiveKind kind) {
  if (hints == nullptr) return false;
  return hints->preferences.of(kind) != nullptr || (hints->inRankOrder && isReduction(kind));
}

void Choice::prefer(const Hints& hints) {
  std::map<std::string, std::string> ofCalls;
  for (const char* key : {"ctran::algorithm", "ctran::deterministic"}) {
    if (const auto hint = hints.find(key); hint != hints.end()) ofCalls.insert(*hint);
  }
  auto standing = ctran::callHints(ofCalls, false);
  if (standing && !hasEngine()) {
    throw ctran::Error(
        ctran::ErrorKind::InvalidArgument,
        "the hint " + ofCalls.begin()->first + " is for ctran, which cannot: " + noEngine_);
  }
  const auto hint = hints.find(kHint);
  std::optional<bool> forced;
  if (hint != hints.end()) forced = isVendor(hint->second, "the hint ncclx::member");
  if (standing && forced == true) {
    throw ctran::Error(
        ctran::ErrorKind::InvalidArgument,
        "the hint ncclx::member is nccl, which knows nothing of the hint " + ofCalls.begin()->first,
        {}, {}, "leave out one of the two");
  }
  standing_ = std::move(standing);
  forced_ = forced;
  forcedBy_ = "the hint ncclx::member";
}

void Choice::prepareCall(CollectiveKind kind, size_t bytes, ctran::DataType type,
                         ctran::ReduceKind op, std::shared_ptr<const ctran::CallHints> hints) {
  if (takesVendor(kind, bytes, hasChoice(kind), hints.get())) return;  // NCCL prepares itself
  if (const auto engine = engine_.lock()) engine->prepareCall(kind, bytes, type, op, hints);
}

void Choice::force(const std::string& member) {
  if (!hasEngine() || !hasVendor()) {
    throw ctran::Error(
        ctran::ErrorKind::Unsupported,
        "there is nothing to choose from: " +
            (hasEngine() ? "there is no NCCL: " + noVendor_ : "ctran cannot: " + noEngine_));
  }
  forced_ = member.empty() ? std::nullopt : std::optional(isVendor(member, "the member"));
  forcedBy_ = "being measured";
}

ctran::TuningTable Choice::use(ctran::TuningTable table) {
  force({});
  table.machine = machine_;
  table.ranks = ranks_;
  members_ = Members(std::move(table), "measured here");
  return members_.table();
}

std::string Choice::whyVendor() const {
  if (!hasEngine()) return "ctran cannot: " + noEngine_;
  return forced_ ? forcedBy_ : "the faster of the two, " + members_.origin();
}

Explanation Choice::explain(CollectiveKind kind, size_t bytes, ctran::DataType type,
                            const ctran::CallHints* hints) const {
  Explanation explanation;
  const bool vendor = takesVendor(kind, bytes, hasChoice(kind), hints);
  explanation.algorithm = vendor ? kVendorName : kEngineName;
  const auto engineTime = members_.micros(kind, bytes, Members::kEngine);
  const auto vendorTime = members_.micros(kind, bytes, Members::kVendor);
  if (!hasVendor()) {
    explanation.why = "there is no NCCL: " + noVendor_;
  } else if (vendor) {
    explanation.why = whyVendor();
  } else if (!hasChoice(kind)) {
    explanation.why = "of this collective nobody has measured both";
  } else if (asksForEngine(hints, kind) || asksForEngine(standing_.get(), kind)) {
    explanation.why = "a hint of ctran's asks for it";
  } else if (forced_) {
    explanation.why = forcedBy_;
  } else if (!engineTime) {
    explanation.why = "the table has nothing of this collective";
  } else {
    explanation.why = "the faster of the two, " + members_.origin();
  }
  const auto add = [&](const char* name, const std::optional<double>& us, const std::string& no) {
    Explanation::Alternative alternative;
    alternative.algorithm = name;
    alternative.measured = us;
    alternative.whyNot = no;
    explanation.alternatives.push_back(std::move(alternative));
  };
  if (const auto engine = engine_.lock()) {
    const Explanation own = engine->explain(kind, bytes, type, hints);
    for (const auto& alternative : own.alternatives) {
      explanation.alternatives.push_back(alternative);
      if (alternative.algorithm == own.algorithm)
        explanation.alternatives.back().measured = engineTime;
    }
    if (!vendor) {
      explanation.algorithm = own.algorithm;
      explanation.why = "ctran: " + explanation.why + "; there " + own.why;
    }
  } else {
    add(kEngineName, engineTime, noEngine_);
  }
  add(kVendorName, vendorTime, noVendor_);
  return explanation;
}

}  // namespace torch::comms::ncclx
