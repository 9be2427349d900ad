#pragma once

#include <string>

namespace torch::comms::nccl {

struct Vendor;

/// The vendor of a backend: "nccl", "ncclx", "rccl", "rcclx".
const Vendor& vendorOf(const std::string& backend);

bool isVendor(const std::string& backend);

/// Throws ctran::Error (Unsupported) unless the backend's library has memory of its own to give.
void requireAllocator(const std::string& backend);

/// What the vendor's configuration variable says; empty when it is not set.
std::string libraryPath(const Vendor& vendor);

}  // namespace torch::comms::nccl
