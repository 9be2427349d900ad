#include "ctran/plan/mscclpp/prove.h"

#include <optional>
#include <string>

#include "ctran/plan/mscclpp/orders.h"
#include "ctran/plan/trim.h"

namespace ctran::plan::mscclpp {
namespace {

Proof proofOf(const Program& program, int iterations, Choices* choices) {
  Lowered lowered = lower(program, iterations, choices);
  lowered.plan = withoutIdleStores(lowered.plan);
  Report report = verify(lowered.plan);
  return {std::move(lowered), std::move(report)};
}

/// Whether it says something about the program.
bool isTelling(const Proof& proof) {
  return !proof.lowered.unordered || (proof.report.ok() && !proof.lowered.mayStick);
}

Refusal tooMany(const Lowered& lowered) {
  const std::string why = "waits for one semaphore or channel that nothing orders, in more than " +
                          std::to_string(kMostOrders) + " orders in all";
  return {ErrorKind::Unsupported, why, why, lowered.unordered->first, lowered.unordered->second};
}

}  // namespace

Proof prove(const Program& program, int iterations) {
  Proof certain = proofOf(program, iterations, nullptr);
  if (isTelling(certain)) return certain;
  Choices choices;
  std::optional<Proof> first;
  int tried = 0;
  do {
    if (++tried > kMostOrders) throw tooMany(certain.lowered);
    Proof proof = proofOf(program, iterations, &choices);
    if (first) {
      std::erase_if(proof.report.findings,
                    [](const Finding& finding) { return finding.kind == Finding::Kind::Bits; });
    }
    if (!proof.report.ok()) return proof;
    if (!first) first = std::move(proof);
  } while (choices.advance());
  return std::move(*first);
}

Lowered lowerUnproved(const Program& program) {
  Proof certain = proofOf(program, kIterations, nullptr);
  if (isTelling(certain)) return std::move(certain.lowered);
  Choices choices;
  for (int tried = 1; true; ++tried) {
    try {
      return proofOf(program, kIterations, &choices).lowered;
    } catch (const Refusal&) {
      if (tried == kMostOrders || !choices.advance()) throw;
    }
  }
}

}  // namespace ctran::plan::mscclpp
