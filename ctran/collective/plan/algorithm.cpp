#include "ctran/collective/plan/algorithm.h"

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/plan/fence.h"
#include "ctran/plan/staging.h"
#include "ctran/transport/shm/arena.h"

namespace ctran {
namespace {

/// What shared memory of one host offers: scratch of all ranks is there for all to read and write,
/// buffers of users are not.
plan::Limits shmLimits() {
  plan::Limits limits;
  limits.scratch = static_cast<int>(Arena::kRingBytes / 64);
  limits.channels = Arena::kSignals;
  limits.remoteOutput = false;
  return limits;
}

}  // namespace

PlanAlgorithm::PlanAlgorithm(plan::Plan plan, bool mayBeWrong)
    : plan_(std::move(plan)), hash_(plan_.hash()) {
  plan::Report report = plan::verify(plan_, shmLimits());
  if (plan_.ranks > Arena::kMaxRanks) {
    throw Error(ErrorKind::Unsupported, "plan '" + plan_.name + "' is for " +
                                            std::to_string(plan_.ranks) + " ranks, one host has " +
                                            std::to_string(Arena::kMaxRanks) + " at most");
  }
  for (const auto& lanes : plan_.programs) {
    for (const auto& lane : lanes) {
      for (const plan::Step& step : lane) {
        for (const plan::Place& place : step.from) {
          if (place.buffer == plan::Buffer::Scratch) continue;
          const int rank = static_cast<int>(&lanes - plan_.programs.data());
          if (place.rank == rank) continue;
          report.findings.insert(
              report.findings.begin(),
              {plan::Finding::Kind::Limit,
               {rank, 0},
               -1,
               "the plan reads a buffer of the caller of rank " + std::to_string(place.rank),
               {}});
        }
      }
    }
  }
  if (mayBeWrong) {
    // Without a signal for each wait there is no next execution.
    std::erase_if(report.findings, [](const plan::Finding& finding) {
      return finding.kind != plan::Finding::Kind::Limit &&
             finding.kind != plan::Finding::Kind::Unmatched;
    });
  }
  if (!report.ok()) {
    const bool limit = report.findings[0].kind == plan::Finding::Kind::Limit;
    throw Error(limit ? ErrorKind::Unsupported : ErrorKind::InvalidArgument,
                "plan '" + plan_.name + "' is not " + (limit ? "possible here" : "right") + ":\n" +
                    report.toText());
  }
  properties_ = std::move(report.properties);
  needsSharedMemory_ = plan::needsOf(plan_).sharedMemory;

  std::vector<int> counters(plan_.ranks, 0);
  for (const plan::Channel& channel : plan_.channels) {
    counters_.push_back(counters[channel.from.rank]++);
  }
  std::vector<int64_t> sent(plan_.channels.size(), 0), taken(plan_.channels.size(), 0);
  readsOutput_.resize(plan_.ranks, false);
  for (int r = 0; r < plan_.ranks; ++r) {
    auto& lanes = steps_.emplace_back();
    for (size_t l = 0; l < plan_.programs[r].size(); ++l) {
      auto& steps = lanes.emplace_back();
      for (const plan::Step& step : plan_.programs[r][l]) {
        Step& prepared = steps.emplace_back();
        for (const plan::Wait& wait : step.waits) {
          taken[wait.channel] += wait.count;
          prepared.waits.push_back(
              {wait.channel, taken[wait.channel] - plan_.channels[wait.channel].credits});
        }
        for (const int signal : step.signals) prepared.signals.push_back({signal, ++sent[signal]});
        prepared.completes = properties_.finals[r][l][steps.size() - 1];
        mostSources_ = std::max(mostSources_, step.from.size());
        for (const plan::Place& place : step.to) writesElsewhere_ |= place.rank != r;
        for (const plan::Place& place : step.from) {
          if (place.buffer == plan::Buffer::Output) readsOutput_[r] = true;
        }
      }
    }
  }
  perExecution_ = sent;
  for (const int64_t count : sent) mostPerExecution_ = std::max(mostPerExecution_, count);
}

PlanAlgorithm::PlanAlgorithm(UserFunction function) : function_(std::move(function)) {
  plan_.name = function_->name;
  plan_.kind = function_->kind;
  if (std::string why = whyNoFunction(function_->kind); !why.empty() || !function_->run) {
    throw Error(ErrorKind::InvalidArgument,
                "'" + function_->name + "': " + (why.empty() ? "there is no function" : why));
  }
  hash_ = ~plan_.hash();  // a plan of that name is something else
  needsSharedMemory_ = true;
}

std::shared_ptr<const PlanAlgorithm> PlanAlgorithm::staged(const plan::Plan& plan) {
  plan::Plan staged = plan::staged(plan);
  const bool isDirect = staged == plan;
  auto algorithm = std::make_shared<PlanAlgorithm>(std::move(staged));
  if (!isDirect && plan::verify(plan).ok()) algorithm->direct_ = plan;
  return algorithm;
}

std::shared_ptr<const PlanAlgorithm> PlanAlgorithm::unproved(const plan::Plan& plan) {
  if (plan::verify(plan).ok()) return staged(plan);
  return std::shared_ptr<const PlanAlgorithm>(
      new PlanAlgorithm(plan::staged(plan::fenced(plan)), true));
}

std::string PlanAlgorithm::whyNot(const Collective& c, int size) const {
  if (c.kind != plan_.kind) {
    return (function_ ? "it does " : "it is a plan for ") + std::string(nameOf(plan_.kind));
  }
  if (function_) {
    // As the engine's own messages are.
    if (c.type >= DataType::Opaque1) return "its type is one of which only the size is known";
    return function_->whyNot ? function_->whyNot(c, size) : std::string();
  }
  if (size != plan_.ranks) return "it is a plan for " + std::to_string(plan_.ranks) + " ranks";
  if (!isReduction(c.kind)) return {};
  if (!toleratesPartialSums(c) && !properties_.flat) {
    return "it rounds sums of " + std::string(nameOf(c.type)) + " more than once";
  }
  if (c.op.kind == ReduceKind::Avg && !properties_.separateFinals) {
    return "it has no place to divide an average";
  }
  return {};
}

}  // namespace ctran
