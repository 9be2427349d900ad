#include "ctran/plan/trim.h"

#include <algorithm>
#include <numeric>

#include "ctran/plan/symbolic_run.h"
#include "ctran/plan/verify.h"

namespace ctran::plan {
namespace {

bool isEmpty(const Step& step) {
  return !step.moves() && step.waits.empty() && step.signals.empty();
}

/// The plan as it is without some of its channels.
Plan without(const Plan& plan, const std::vector<bool>& dropped) {
  Plan left = plan;
  left.channels.clear();
  std::vector<int> numbers;  // of the channels that are left
  for (size_t c = 0; c < plan.channels.size(); ++c) {
    numbers.push_back(static_cast<int>(left.channels.size()));
    if (!dropped[c]) left.channels.push_back(plan.channels[c]);
  }
  for (auto& lanes : left.programs) {
    for (Lane& lane : lanes) {
      for (Step& step : lane) {
        std::erase_if(step.waits, [&](const Wait& wait) { return dropped[wait.channel]; });
        std::erase_if(step.signals, [&](int signal) { return dropped[signal]; });
        for (Wait& wait : step.waits) wait.channel = numbers[wait.channel];
        for (int& signal : step.signals) signal = numbers[signal];
      }
      std::erase_if(lane, isEmpty);
    }
  }
  return left;
}

}  // namespace

Plan withoutIdleCredits(const Plan& plan) {
  const Properties wanted = verify(plan).properties;
  const auto isRight = [&](const Plan& candidate) {
    const Report report = verify(candidate);
    return report.ok() && report.properties.inPlaceSafe >= wanted.inPlaceSafe;
  };
  std::vector<bool> dropped(plan.channels.size(), false);
  const auto hasCredits = [&](size_t c) { return plan.channels[c].credits > 0; };
  for (size_t c = 0; c < dropped.size(); ++c) dropped[c] = hasCredits(c);
  Plan left = without(plan, dropped);
  if (isRight(left)) return left;
  // Then those that can go, one after the other.
  std::fill(dropped.begin(), dropped.end(), false);
  left = plan;
  for (size_t c = 0; c < dropped.size(); ++c) {
    if (!hasCredits(c)) continue;
    dropped[c] = true;
    Plan candidate = without(plan, dropped);
    if (isRight(candidate)) {
      left = std::move(candidate);
    } else {
      dropped[c] = false;
    }
  }
  return left;
}

Plan withLargestChunks(const Plan& plan) {
  int common = std::gcd(plan.chunks, plan.scratch);
  const auto forEachPlace = [](auto& step, const auto& visit) {
    for (auto& place : step.from) visit(place);
    for (auto& place : step.to) visit(place);
  };
  for (const auto& lanes : plan.programs) {
    for (const Lane& lane : lanes) {
      for (const Step& step : lane) {
        if (!step.moves()) continue;
        common = std::gcd(common, std::gcd(step.count, step.part));
        forEachPlace(step, [&](const Place& place) { common = std::gcd(common, place.index); });
      }
    }
  }
  Plan large = plan;
  large.chunks /= common;
  large.scratch /= common;
  for (auto& lanes : large.programs) {
    for (Lane& lane : lanes) {
      for (Step& step : lane) {
        if (!step.moves()) continue;
        step.count /= common;
        step.part /= common;
        forEachPlace(step, [&](Place& place) { place.index /= common; });
      }
    }
  }
  return large;
}

Plan withoutIdleStores(const Plan& plan) {
  Plan puts = plan;
  for (auto& lanes : puts.programs) {
    for (Lane& lane : lanes) {
      for (Step& step : lane) step.store = false;
    }
  }
  return puts == plan || verify(puts).ok() ? puts : plan;
}

Plan withSumsInRankOrder(const Plan& plan) {
  check(plan);
  SymbolicRun run({&plan}, plan.inPlace);
  run.run();  // of one that does not end, that far
  Plan ordered = plan;
  for (const auto& [at, order] : run.rankOrder) {
    Step& step = ordered.programs[at.first.rank][at.first.lane][at.second];
    const std::vector<Place> from = step.from;
    for (size_t s = 0; s < order.size(); ++s) step.from[s] = from[order[s]];
  }
  return ordered;
}

}  // namespace ctran::plan
