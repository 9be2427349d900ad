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

void Choice::prefer(const Hints& hints) {
  const auto hint = hints.find(kHint);
  if (hint == hints.end()) return;
  forced_ = isVendor(hint->second, "the hint ncclx::member");
  forcedBy_ = "the hint ncclx::member";
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

Explanation Choice::explain(CollectiveKind kind, size_t bytes, ctran::DataType,
                            const ctran::CallHints*) const {
  Explanation explanation;
  const bool vendor = takesVendor(kind, bytes, hasChoice(kind));
  explanation.algorithm = vendor ? kVendorName : kEngineName;
  const auto engineTime = members_.micros(kind, bytes, Members::kEngine);
  const auto vendorTime = members_.micros(kind, bytes, Members::kVendor);
  if (!hasVendor()) {
    explanation.why = "there is no NCCL: " + noVendor_;
  } else if (!hasEngine()) {
    explanation.why = "ctran cannot: " + noEngine_;
  } else if (!hasChoice(kind)) {
    explanation.why = "of this collective nobody has measured both";
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
  add(kEngineName, engineTime, noEngine_);
  add(kVendorName, vendorTime, noVendor_);
  return explanation;
}

}  // namespace torch::comms::ncclx
