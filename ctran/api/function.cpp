#include "ctran/function.h"

#include <utility>

#include "ctran/collective/plan/user_function.h"
#include "ctran/select/plans.h"

namespace ctran::api {

uint64_t registerFunction(Function function, const PlanUse& use) {
  ctran::UserFunction made;
  made.name = std::move(function.name);
  made.kind = function.kind;
  made.onGpus = function.onGpus;
  made.owner = std::move(function.owner);
  made.places = static_cast<UserFunction::Places>(function.places);
  if (function.whyNot) {
    made.whyNot = [whyNot = std::move(function.whyNot)](const Collective& c, int size) {
      const FunctionBytes bytes = functionBytes(c, size);
      return whyNot({size, c.type, c.op.kind, bytes.input, bytes.output});
    };
  }
  if (function.run) {
    made.run = [run = std::move(function.run)](const UserFunction::Call& call) {
      const Collective& c = call.collective;
      run({call.group, call.kept, c.kind, c.type, c.op.kind, c.root, c.input, c.output,
           call.bytes.input, call.bytes.output, call.stream});
    };
  }
  made.check = std::move(function.check);
  return ctran::registerFunction(std::move(made),
                                 {use.communicator, use.minBytes, use.maxBytes, use.preferred});
}

}  // namespace ctran::api
