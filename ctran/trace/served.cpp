#include "ctran/trace/served.h"

#include <utility>

namespace ctran {
namespace {

thread_local Served tServed;
thread_local bool tIsSaid = false;

}  // namespace

void Served::say(std::string_view algorithm, std::string_view why) {
  tServed.algorithm = algorithm;  // into memory that it has, after the first time
  tServed.why = why;
  tIsSaid = true;
}

const Served* Served::take() { return std::exchange(tIsSaid, false) ? &tServed : nullptr; }

}  // namespace ctran
