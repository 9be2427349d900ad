#pragma once

#include <cstddef>
#include <vector>

#include "ctran/collective/collective.h"

namespace ctran {

/// Replaces the contribution to a PremulSum by its product with this rank's factor, so that a sum
/// remains to be done. The product is rounded to the data type and lives in the returned memory.
/// Other reductions are left alone, and nothing is returned.
std::vector<std::byte> applyPremul(Collective& collective, int size);

}  // namespace ctran
