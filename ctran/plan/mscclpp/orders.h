#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ctran/plan/mscclpp/counters.h"
#include "ctran/plan/plan.h"

namespace ctran::plan::mscclpp {

/// Goes through runs that differ in what they choose: depth first, the first option first.
class Choices {
 public:
  /// Returns which of so many options (one at least) the run takes at its next choice.
  size_t next(size_t options);
  /// Begins another run; false if there is none.
  bool advance();

 private:
  struct Choice {
    size_t taken, options;
  };
  std::vector<Choice> choices_;
  size_t at_ = 0;
};

/// Makes the signals and waits of those counters that are `contended` come in one order, which
/// `choices` chooses among all that can be: the k-th wait of a counter gets a channel from each of
/// the signals that it needs, which are the first ones. The other counters only count.
///
/// Returns a wait that never ends in that order, if there is one; the plan is none then.
std::optional<Use> settleOrder(Plan& plan, const std::vector<Counter>& counters,
                               const std::vector<bool>& contended, Choices& choices);

}  // namespace ctran::plan::mscclpp
