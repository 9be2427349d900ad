#include "torchcomms/csrc/config.hpp"

#include <cmath>
#include <cstdlib>
#include <sstream>

namespace torch::comms {

namespace {

constexpr double kMostSeconds = 1e9;  // what every clock can add

std::string print(double seconds) {
  std::ostringstream text;
  text << seconds;
  return text.str();
}

}  // namespace

double ConfigSeconds::seconds() const {
  const std::string text = raw();
  return text.empty() ? default_ : parse(text);
}

double ConfigSeconds::parse(const std::string& text) const {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(value >= 0 && value <= kMostSeconds)) {
    reject(text, "a number of seconds");
  }
  return value;
}

std::chrono::milliseconds ConfigSeconds::get() const {
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds() * 1000)));
}

std::string ConfigSeconds::defaultText() const { return print(default_); }
std::string ConfigSeconds::valueText() const { return print(seconds()); }

}  // namespace torch::comms
