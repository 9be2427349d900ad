#include "tests/unit/verbs/verbs_fixture.h"

#include <dlfcn.h>
#include <stdlib.h>

namespace ibverbx {

namespace {

// Tests of hosts go over TCP, whatever devices there are, unless a library is named: so the table
// is the stand-in's, or that library's, whichever test comes first.
[[maybe_unused]] const bool kChosen = [] {
  return ::getenv("CTRAN_VERBS_LIBRARY") != nullptr || ::setenv("CTRAN_IB", "0", 0) == 0;
}();

}  // namespace

const StandInVerbs* StandInVerbs::get() {
#ifdef STAND_IN_VERBS
  static const StandInVerbs controls = [] {
    ::setenv("CTRAN_VERBS_LIBRARY", STAND_IN_VERBS, 1);
    VerbsLibrary::get();
    ::unsetenv("CTRAN_VERBS_LIBRARY");
    void* library = ::dlopen(STAND_IN_VERBS, RTLD_NOW | RTLD_NOLOAD);
    StandInVerbs found;
#define CTRAN_FIND(name, ...) \
  found.name = reinterpret_cast<decltype(found.name)>(::dlsym(library, #name));
    STAND_IN_VERBS_CONTROLS(CTRAN_FIND)
#undef CTRAN_FIND
    return found;
  }();
  return &controls;
#else
  return nullptr;
#endif
}

void VerbsTest::SetUp() {
  standIn = StandInVerbs::get();
  ASSERT_NE(standIn, nullptr);
  standIn->standInVerbsReset(0);
}

void VerbsTest::TearDown() {
  EXPECT_EQ(standIn->standInVerbsObjects(), 0) << "verbs' objects are left";
}

}  // namespace ibverbx
