#pragma once

#include "ctran/plan/mscclpp/program.h"
#include "ctran/plan/verify.h"

namespace ctran::plan::mscclpp {

struct Proof {
  Lowered lowered;
  Report report;
};

inline constexpr int kMostOrders = 2000;

/// Lowers the program, and verifies it. Where several thread blocks wait on one semaphore or
/// channel and nothing orders them, it is right if it is in every order in which they can come, of
/// which there are `kMostOrders` at most. The plan keeps to the first one, in which the ranks have
/// the same bits; in others their last bits may differ. A program that is wrong in some order has
/// the plan and the report of that one.
///
/// Throws Refusal.
Proof prove(const Program& program, int iterations = kIterations);

/// Lowers a program that nobody proves: the plan is that of `prove`, or keeps to the first order
/// that ends.
///
/// Throws Refusal.
Lowered lowerUnproved(const Program& program);

}  // namespace ctran::plan::mscclpp
