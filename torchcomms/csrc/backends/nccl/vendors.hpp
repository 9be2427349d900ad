#pragma once

#include <string>

namespace torch::comms::nccl {

struct Vendor;

/// Returns the vendor of a backend: "nccl", "ncclx", "rccl", "rcclx".
const Vendor& vendorOf(const std::string& backend);

bool isVendor(const std::string& backend);

/// Throws ctran::Error (Unsupported) unless the backend's library can allocate memory.
void requireAllocator(const std::string& backend);

/// Returns the value of the vendor's configuration variable; empty when it is not set.
std::string libraryPath(const Vendor& vendor);

}  // namespace torch::comms::nccl
