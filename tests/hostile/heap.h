// How much this program has allocated.
#pragma once

#include <cstdint>

namespace ctran::testing {

int64_t heapNow();     ///< bytes
void beginHeapMark();  ///< from now on
int64_t heapMost();    ///< it has been so many at most

}  // namespace ctran::testing
