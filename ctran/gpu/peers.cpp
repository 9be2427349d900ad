#include "ctran/gpu/peers.h"

#include "ctran/gpu/driver.h"

namespace ctran::gpu {

uint64_t pciAddressOf(int device) {
  uint64_t address = 0;
  for (const unsigned part : pciAddress(deviceHandle(device))) {
    address = address << 16 | static_cast<uint16_t>(part);
  }
  return address;
}

bool hasNativeAtomics(int device, uint64_t address) {
  if (address == pciAddressOf(device)) return true;
  for (int ordinal = 0; ordinal < deviceCount(); ++ordinal) {
    if (pciAddressOf(ordinal) != address) continue;
    int atomics = 0;
    return Driver::get().deviceGetP2PAttribute(&atomics, PeerAttribute::NativeAtomics,
                                               deviceHandle(device),
                                               deviceHandle(ordinal)) == kSuccess &&
           atomics != 0;
  }
  return false;
}

}  // namespace ctran::gpu
