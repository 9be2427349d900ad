#include "ctran/collective/algorithm.h"
#include "ctran/collective/shm_context.h"
#include "ctran/collective/shm_cost.h"
#include "ctran/collective/shm_exchange.h"

namespace ctran {
namespace {

/// One step: every rank publishes an empty slot and waits for all others'.
Task barrierStep(ShmContext& shm, const Collective&) {
  return exchangeStep(shm, 0, true, kFromAll, writeNothing, [](const std::byte* const*) {});
}

}  // namespace

namespace algorithms {

Algorithm barrierShmStep() {
  return {
      .name = "step", .kinds = {CollectiveKind::Barrier}, .run = barrierStep, .micros = stepMicros};
}

}  // namespace algorithms

}  // namespace ctran
