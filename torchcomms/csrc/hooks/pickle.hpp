#pragma once

#include <string>

#include "ctran/base/json.h"

namespace torch::comms {

/// The value as Python's pickle, protocol 2.
std::string pickled(const ctran::Json& value);

}  // namespace torch::comms
