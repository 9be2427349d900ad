#pragma once

#include <string>
#include <string_view>

namespace ctran {

/// Which algorithm serves the call that this thread is in, for whoever records calls without
/// knowing what serves them.
struct Served {
  std::string algorithm, why;

  static void say(std::string_view algorithm, std::string_view why);
  /// What this thread has said since it was asked the last time; null for nothing. Valid until it
  /// says something else.
  static const Served* take();
};

}  // namespace ctran
