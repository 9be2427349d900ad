#include "ctran/plan/verify.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <memory>

#include "ctran/base/error.h"
#include "ctran/plan/symbolic_run.h"

namespace ctran::plan {
namespace {

void addFinding(Report& report, Finding::Kind kind, LaneId lane, int step,
                const std::string& message) {
  report.findings.push_back({kind, lane, step, message, {}});
}

void checkLimits(const Plan& plan, const Limits& limits, Report& report) {
  const Needs needs = needsOf(plan);
  const auto atMost = [&](const char* what, int need, int limit) {
    if (need <= limit) return;
    addFinding(report, Finding::Kind::Limit, {}, -1,
               "the plan needs " + std::to_string(need) + " " + what + ", there are " +
                   std::to_string(limit));
  };
  atMost("chunks of scratch per rank", needs.scratch, limits.scratch);
  atMost("channels from one rank", needs.channels, limits.channels);
  atMost("lanes", needs.lanes, limits.lanes);
  if (needs.remoteRead && !limits.remoteRead) {
    addFinding(report, Finding::Kind::Limit, {}, -1, "the plan reads memory of other ranks");
  }
  if (needs.remoteOutput && !limits.remoteOutput) {
    addFinding(report, Finding::Kind::Limit, {}, -1, "the plan writes into outputs of other ranks");
  }
  if (needs.packets && !limits.packets) {
    addFinding(report, Finding::Kind::Limit, {}, -1, "the plan uses packets");
  }
  for (int r = 0; r < plan.ranks; ++r) {
    for (int l = 0; l < static_cast<int>(plan.programs[r].size()); ++l) {
      const auto steps = plan.programs[r][l].size();
      if (steps <= static_cast<size_t>(limits.steps)) continue;
      addFinding(report, Finding::Kind::Limit, {r, l}, limits.steps,
                 "rank " + std::to_string(r) + ", lane " + std::to_string(l) + " has " +
                     std::to_string(steps) + " steps, there is room for " +
                     std::to_string(limits.steps));
    }
  }
}

/// In each execution a channel carries as many signals as are waited for, else the next one begins
/// with too many or too few.
void checkSignals(const Plan& plan, Report& report) {
  std::vector<std::vector<Moment>> sent(plan.channels.size()), taken(plan.channels.size());
  for (int r = 0; r < plan.ranks; ++r) {
    for (int l = 0; l < static_cast<int>(plan.programs[r].size()); ++l) {
      for (int s = 0; s < static_cast<int>(plan.programs[r][l].size()); ++s) {
        const Step& step = plan.programs[r][l][s];
        for (const int signal : step.signals) sent[signal].push_back({{r, l}, s});
        for (const Wait& wait : step.waits) {
          taken[wait.channel].insert(taken[wait.channel].end(), wait.count, {{r, l}, s});
        }
      }
    }
  }
  for (size_t i = 0; i < plan.channels.size(); ++i) {
    if (sent[i].size() == taken[i].size()) continue;
    const Channel& channel = plan.channels[i];
    addFinding(report, Finding::Kind::Unmatched, channel.from, -1,
               "rank " + std::to_string(channel.from.rank) + ", lane " +
                   std::to_string(channel.from.lane) + " signals c" + std::to_string(i) + " " +
                   std::to_string(sent[i].size()) + " times in an execution, rank " +
                   std::to_string(channel.to.rank) + ", lane " + std::to_string(channel.to.lane) +
                   " waits for " + std::to_string(taken[i].size()));
    // The first for which the other side has nothing.
    const auto& more = sent[i].size() > taken[i].size() ? sent[i] : taken[i];
    const Moment surplus = more[std::min(sent[i].size(), taken[i].size())];
    report.findings.back().others = {surplus};
  }
}

/// The inputs that an output chunk has to be made of.
std::vector<Symbols::Leaf> expected(const Plan& plan, int execution, int rank, int index) {
  const int block = index / plan.chunks, part = index % plan.chunks;
  std::vector<Symbols::Leaf> leaves;
  switch (plan.kind) {
    case CollectiveKind::AllReduce:
      for (int r = 0; r < plan.ranks; ++r) leaves.push_back({execution, r, index});
      break;
    case CollectiveKind::ReduceScatter:
      for (int r = 0; r < plan.ranks; ++r) {
        leaves.push_back({execution, r, rank * plan.chunks + index});
      }
      break;
    case CollectiveKind::AllGather:
      leaves.push_back({execution, block, part});
      break;
    case CollectiveKind::AllToAll:
      leaves.push_back({execution, block, rank * plan.chunks + part});
      break;
    default:
      leaves.push_back({execution, plan.root, index});
  }
  return leaves;
}

std::string sumText(const std::vector<Symbols::Leaf>& leaves) {
  std::string text;
  for (const Symbols::Leaf& leaf : leaves) {
    if (text.size() > 200) return text + " + ...";
    text += (text.empty() ? "" : " + ") + std::to_string(leaf.rank) + "[" +
            std::to_string(leaf.chunk) + "]";
  }
  return text;
}

/// What the last finding is about.
Finding& addPlace(Report& report, int execution, const Place& place, SymbolicRun& run) {
  Finding& finding = report.findings.back();
  finding.execution = execution;
  finding.place = place;
  for (const Moment& moment : {run.writer(execution, place), run.maker(execution, place)}) {
    if (moment.step >= 0) finding.others.push_back(moment);
  }
  return finding;
}

void checkResults(const Plan& plan, SymbolicRun& run, int execution, Report& report) {
  const int size = plan.size(Buffer::Output);
  for (int i = 0; i < size; ++i) {
    Symbols::Id ofRankZero = Symbols::kNothing;
    for (int r = 0; r < plan.ranks; ++r) {
      if (report.findings.size() > 20) return;
      const Place place{r, Buffer::Output, i};
      const Symbols::Id value = run.value(execution, place);
      std::vector<Symbols::Leaf> leaves;
      for (const Symbols::Id id : run.symbols.leavesOf(value)) {
        leaves.push_back(run.symbols.leaf(id));
      }
      std::sort(leaves.begin(), leaves.end());
      const auto wanted = expected(plan, execution, r, i);
      if (leaves != wanted) {
        bool other = false;
        for (const Symbols::Leaf& leaf : leaves) other |= leaf.execution != execution;
        const Moment writer = run.writer(execution, place);
        addFinding(
            report, Finding::Kind::WrongResult, {r, 0}, -1,
            "output[" + std::to_string(i) + "] of rank " + std::to_string(r) + " is " +
                run.symbols.toText(value) + (other ? ", of another execution," : "") +
                " instead of " + sumText(wanted) +
                (writer.step < 0 ? " (nobody wrote it)"
                                 : " (written by " + toText(writer.lane, writer.step) + ")"));
        Finding& finding = addPlace(report, execution, place, run);
        std::set_difference(wanted.begin(), wanted.end(), leaves.begin(), leaves.end(),
                            std::back_inserter(finding.lacking));
        std::set_difference(leaves.begin(), leaves.end(), wanted.begin(), wanted.end(),
                            std::back_inserter(finding.surplus));
        continue;
      }
      if (r == 0) ofRankZero = value;
      if (plan.kind == CollectiveKind::AllReduce && value != ofRankZero && ofRankZero != 0) {
        addFinding(report, Finding::Kind::Bits, {r, 0}, -1,
                   "output[" + std::to_string(i) + "] is " + run.symbols.toText(value) +
                       " on rank " + std::to_string(r) + " but " + run.symbols.toText(ofRankZero) +
                       " on rank 0: the last bits differ");
        addPlace(report, execution, place, run);
      }
      report.properties.rankOrder &= run.symbols.isInRankOrder(value);
      report.properties.flat &= run.symbols.isFlat(value);
    }
  }
}

/// What the plan may not touch.
void checkInputs(const Plan& plan, SymbolicRun& run, Report& report) {
  if (plan.inPlace) return;
  for (int r = 0; r < plan.ranks; ++r) {
    for (int i = 0; i < plan.size(Buffer::Input); ++i) {
      if (run.value(0, {r, Buffer::Input, i}) != run.symbols.input(0, r, i)) {
        addFinding(
            report, Finding::Kind::ModifiedInput, {r, 0}, -1,
            "input[" + std::to_string(i) + "] of rank " + std::to_string(r) + " is modified");
        addPlace(report, 0, {r, Buffer::Input, i}, run);
      }
    }
  }
}

void runAndCheck(const Plan& plan, bool inPlace, Report& report) {
  // A copy of scratch is used again after `depth` executions; before that nothing has been used up
  // of what was there in the beginning, so that later executions are ordered at least as these.
  const bool unmatched = !report.findings.empty();
  std::vector<const Plan*> executions(unmatched ? 1 : plan.depth + 1, &plan);
  SymbolicRun run(executions, inPlace);
  const bool ended = run.run();
  report.findings.insert(report.findings.end(), run.findings.begin(), run.findings.end());
  report.properties.separateFinals = run.properties.separateFinals;
  report.properties.finals = std::move(run.properties.finals);
  report.properties.rankOrder = report.properties.flat = true;
  if (!ended) return;
  for (size_t e = 0; e < executions.size() && !plan.open; ++e) {
    checkResults(plan, run, static_cast<int>(e), report);
  }
  if (!inPlace) checkInputs(plan, run, report);
}

}  // namespace

std::string_view nameOf(Finding::Kind kind) {
  constexpr std::string_view kNames[] = {
      "limit", "unmatched", "deadlock",     "race", "uninitialized",
      "shape", "packet",    "wrong result", "bits", "modified input"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Report::toText() const {
  std::string text;
  for (const Finding& finding : findings) {
    text += std::string(nameOf(finding.kind)) + ": " + finding.message + "\n";
    if (finding.trace.empty()) continue;
    text += "  after";
    size_t shown = 0;
    for (const std::string& line : finding.trace) {
      if (++shown > 8) break;
      text += (shown == 1 ? " " : "; ") + line;
    }
    if (shown > 8) {
      text += "; and " + std::to_string(finding.trace.size() - 8) + " other lanes";
    }
    text += "\n";
  }
  return text;
}

Report verify(const Plan& plan, const Limits& limits) {
  check(plan);
  Report report;
  checkLimits(plan, limits, report);
  if (!report.ok()) return report;
  checkSignals(plan, report);
  runAndCheck(plan, false, report);
  if (report.ok() && !plan.inPlace && !plan.open) {
    Report inPlace;
    runAndCheck(plan, true, inPlace);
    report.properties.inPlaceSafe = inPlace.ok();
  }
  report.properties.inPlaceSafe |= plan.inPlace;
  // A list keeps the order of what is alike.
  std::list<Finding> ordered(report.findings.begin(), report.findings.end());
  ordered.sort([](const Finding& a, const Finding& b) { return a.kind < b.kind; });
  report.findings.assign(ordered.begin(), ordered.end());
  return report;
}

Report verifyAfter(const Plan& first, const Plan& second) {
  check(first);
  check(second);
  if (first.ranks != second.ranks) {
    throw Error(ErrorKind::InvalidArgument, "plans over " + std::to_string(first.ranks) + " and " +
                                                std::to_string(second.ranks) +
                                                " ranks share no scratch");
  }
  // The same plan twice is as another one: the layout may have changed.
  const auto copy = std::make_unique<Plan>(second);
  std::vector<const Plan*> executions(first.depth, &first);
  executions.insert(executions.end(), second.depth, copy.get());
  SymbolicRun run(std::move(executions), false);
  run.run();
  Report report;
  report.findings = std::move(run.findings);
  return report;
}

}  // namespace ctran::plan
