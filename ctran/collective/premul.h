#pragma once

#include <cstddef>
#include <vector>

#include "ctran/collective/collective.h"

namespace ctran {

/// Replaces the contribution to a PremulSum by its product with this rank's factor; what remains to
/// be done is a sum. The product is rounded to the data type and lives in the returned memory.
/// Other reductions are left alone, and nothing is returned.
std::vector<std::byte> applyPremul(Collective& collective, int size);

}  // namespace ctran
