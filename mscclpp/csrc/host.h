#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace mscclpp {

/// Names the host as far as memory can be mapped: equal for ranks that may map each other's.
using HostName = std::array<char, 128>;
HostName ownHostName();

/// A random number that the threads of this process share with nobody.
uint64_t ownProcessToken();

void fillRandom(void* data, size_t bytes);

/// A descriptor that is closed with its last owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

/// Readable when that process of this host has ended. Throws Error(RemoteError) if it has.
std::shared_ptr<Descriptor> openProcess(int pid);

}  // namespace mscclpp
