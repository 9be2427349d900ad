#pragma once

#include <gtest/gtest.h>

#include "tests/standins/verbs/control.h"
#include "tests/unit/verbs/side.h"

namespace ibverbx {

/// The stand-in's controls, in the library that this process has loaded as libibverbs.so.1.
struct StandInVerbs {
#define CTRAN_MEMBER(name, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  STAND_IN_VERBS_CONTROLS(CTRAN_MEMBER)
#undef CTRAN_MEMBER
  /// Null where the tests have been built without it.
  static const StandInVerbs* get();
};

class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  const StandInVerbs* standIn = nullptr;
};

}  // namespace ibverbx
