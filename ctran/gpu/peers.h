#pragma once

#include <cstdint>

namespace ctran::gpu {

/// The PCI address of a device: domain, bus and device, the same in all processes of a host.
uint64_t pciAddressOf(int device);

/// Whether atomic operations of `device` work on the memory of the GPU at that PCI address, as they
/// do over NVLink. False for one that this process does not see: nothing is known of it.
bool hasNativeAtomics(int device, uint64_t address);

}  // namespace ctran::gpu
