// A memory cgroup that is soon full.
#pragma once

#include <sys/types.h>

#include <string>

namespace ctran::testing {

class MemoryCgroup {
 public:
  /// Of cgroup v1 or v2, whichever this machine lets us make; removed in the end.
  MemoryCgroup();
  ~MemoryCgroup();
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  /// Why there is none; empty if there is.
  const std::string& whyNot() const { return whyNot_; }

  /// What the process allocates from now on has to fit into a few megabytes.
  void take(pid_t process) const;

 private:
  std::string folder_, whyNot_;
};

}  // namespace ctran::testing
