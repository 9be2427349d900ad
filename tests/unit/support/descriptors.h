// A process that can open no more descriptors.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace ctran::testing {

/// Takes what descriptors there are. Only what may be called by signal handlers is used.
class Descriptors {
 public:
  /// From now on there is none, whatever is closed.
  void forbid() { allow(3); }

  /// From now on all are in use: who closes one can open one.
  void takeAll() {
    int highest = 2;
    for (int fd = 0; fd < kMost; ++fd) {
      if (::fcntl(fd, F_GETFD) >= 0) highest = fd;
    }
    allow(static_cast<rlim_t>(highest) + 1);
    int fd;
    while (count_ < taken_.size() && (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
      taken_[count_++] = fd;
    }
  }

  void giveBack() {
    while (count_ > 0) ::close(taken_[--count_]);
    if (limited_) ::setrlimit(RLIMIT_NOFILE, &before_);
    limited_ = false;
  }

 private:
  static constexpr int kMost = 1024;

  void allow(rlim_t count) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min(count, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    limited_ = true;
  }

  rlimit before_{};
  bool limited_ = false;
  std::array<int, kMost> taken_{};
  size_t count_ = 0;
};

/// None can be opened while it lives, whatever is closed.
class NoDescriptors {
 public:
  NoDescriptors() { descriptors_.forbid(); }
  ~NoDescriptors() { descriptors_.giveBack(); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  Descriptors descriptors_;
};

/// All are in use while it lives.
class AllDescriptorsInUse {
 public:
  AllDescriptorsInUse() { descriptors_.takeAll(); }
  ~AllDescriptorsInUse() { descriptors_.giveBack(); }
  AllDescriptorsInUse(const AllDescriptorsInUse&) = delete;
  AllDescriptorsInUse& operator=(const AllDescriptorsInUse&) = delete;

 private:
  Descriptors descriptors_;
};

}  // namespace ctran::testing
