#pragma once

#include <fstream>
#include <string>

namespace bench {

/// What this process has of memory, shared pages by the share of it.
inline double residentKilobytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (word != "Pss:") continue;
    double kilobytes = 0;
    file >> kilobytes;
    return kilobytes;
  }
  return 0;
}

}  // namespace bench
