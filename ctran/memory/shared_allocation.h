#pragma once

#include <cstddef>
#include <memory>

#include "ctran/os/shared_memory.h"

namespace ctran {

/// Page-aligned memory that other processes of the host can map. It is filled with zeros; pages
/// cost memory once touched. It lives as long as it is held here or mapped elsewhere.
class SharedAllocation {
 public:
  /// Allocates at least `bytes`, rounded up to whole pages. Throws Error(System).
  static std::shared_ptr<SharedAllocation> allocate(size_t bytes);

  /// Returns the allocation that holds all of [data, data + bytes); null for memory of any other
  /// kind.
  static std::shared_ptr<SharedAllocation> find(const void* data, size_t bytes);

  ~SharedAllocation();
  SharedAllocation(const SharedAllocation&) = delete;
  SharedAllocation& operator=(const SharedAllocation&) = delete;

  std::byte* data() const { return mapping_->data(); }
  size_t size() const { return mapping_->size(); }
  const UniqueFd& fd() const { return fd_; }

 private:
  SharedAllocation(UniqueFd fd, std::shared_ptr<SharedMapping> mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  UniqueFd fd_;
  std::shared_ptr<SharedMapping> mapping_;
};

}  // namespace ctran
