#pragma once

#include <cstddef>
#include <memory>

#include "ctran/os/unique_fd.h"

namespace ctran {

/// Bytes of a page. Memory that processes share begins and ends at one.
inline constexpr size_t kPage = 4096;

/// An anonymous file of zeros that can be neither grown nor shrunk, so that a peer cannot turn our
/// reads into SIGBUS. It has no name anywhere: the kernel frees it with its last descriptor and
/// mapping, however the processes end. Pages cost memory only once touched.
UniqueFd createSharedMemory(const char* label, size_t bytes);
/// How much that is.
size_t sharedMemoryBytes(int fd);

/// Takes memory for pages that are about to be written, all at once: much faster than one by one on
/// first use, also for others who then map many at a time. Where the system cannot, nothing
/// happens.
void populate(std::byte* begin, size_t bytes);

/// A mapping of such a file. Mappings of one file within one process are one mapping: ranks that
/// are threads then share addresses, which is what lets a race detector see them.
class SharedMapping {
 public:
  /// Throws Error(System) when `fd` is not a sealed file of exactly `bytes`.
  static std::shared_ptr<SharedMapping> map(const UniqueFd& fd, size_t bytes);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  SharedMapping(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_;
  size_t size_;
};

}  // namespace ctran
