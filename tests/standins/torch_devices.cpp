// A stand-in for the GPUs that torch knows of: eight, which have nothing but an index. One of them
// is current for each thread.

#include <c10/core/impl/FakeGuardImpl.h>

#define STAND_IN extern "C" __attribute__((visibility("default")))

using Guard = c10::impl::FakeGuardImpl<c10::DeviceType::CUDA>;

STAND_IN void standInForDevices() {
  static const Guard guard;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(Guard::static_type)].store(&guard);
}

STAND_IN int standInCurrentDevice() { return Guard::getDeviceIndex(); }

STAND_IN void standInSetDevice(int index) {
  Guard::setDeviceIndex(static_cast<c10::DeviceIndex>(index));
}
