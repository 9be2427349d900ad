#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <mscclpp/core.hpp>

namespace mscclpp {

/// Since it was made, or reset.
class Timer {
 public:
  Timer() { reset(); }
  void reset() { began_ = std::chrono::steady_clock::now(); }
  int64_t elapsed() const {  ///< microseconds
    const auto time = std::chrono::steady_clock::now() - began_;
    return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  }

 private:
  std::chrono::steady_clock::time_point began_;
};

/// At most `maxlen` characters, up to `delim`.
MSCCLPP_API std::string getHostName(int maxlen, char delim);

}  // namespace mscclpp
