#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace torch::comms {

/// Whether torch's allocator of the CPU has made the memory that a storage has now.
bool isOfCpuAllocator(const c10::StorageImpl& storage);

/// Expires when the memory that a tensor has now is freed, or about to be: unlike its address,
/// which other memory may get, it does not come again. Of memory that torch's allocator of the CPU
/// has not made nothing is known, and it never expires.
std::weak_ptr<void> lifeOfMemory(const at::Tensor& tensor);

}  // namespace torch::comms
