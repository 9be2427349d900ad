#pragma once

#include <memory>
#include <vector>

#include "mscclpp/algorithm.hpp"

namespace mscclpp {

/// New ones. As mscclpp/defaults.py has them.
std::vector<std::shared_ptr<Algorithm>> defaultAlgorithms();

}  // namespace mscclpp
