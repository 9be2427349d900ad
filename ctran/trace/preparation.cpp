#include "ctran/trace/preparation.h"

#include <utility>

#include "ctran/trace/ticks.h"

namespace ctran {
namespace {

thread_local int tDepth = 0;
thread_local uint64_t tSpent = 0;

}  // namespace

Preparation::Preparation() {
  if (tDepth++ == 0) since_ = ticks();
}

Preparation::~Preparation() {
  if (--tDepth == 0) tSpent += ticks() - since_;
}

uint64_t Preparation::take() { return std::exchange(tSpent, 0); }

}  // namespace ctran
