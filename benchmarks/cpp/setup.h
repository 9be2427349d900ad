#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ctran/engine/communicator.h"

namespace bench {

/// Makes the communicator of a name. Collective.
using Create = std::function<std::shared_ptr<ctran::Communicator>(const std::string& name)>;

/// Times, on all ranks of `base` together, how long it takes to make a communicator through the
/// store and by `split` of all ranks, and looks at the memory that a rank has more with one that
/// has done small collectives. Rank 0 prints the slowest rank's. Collective.
void timeSetup(ctran::Communicator& base, const Create& create, int repeats);

}  // namespace bench
