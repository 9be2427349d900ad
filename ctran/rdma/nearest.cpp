#include "ctran/rdma/nearest.h"

#include <cstdio>
#include <numeric>

#include "ctran/base/error.h"
#include "ctran/gpu/driver.h"

namespace ctran {

PciPlace placeOfGpu(int device, const std::string& sysfs) {
  const auto [domain, bus, number] = gpu::pciAddress(gpu::deviceHandle(device));
  char name[32];
  std::snprintf(name, sizeof name, "%04x:%02x:%02x.0", domain, bus, number);
  return PciPlace::of(sysfs + "/sys/bus/pci/devices/" + name);
}

std::vector<size_t> nearestDevices(const RdmaDevices& devices, const PciPlace& gpu) {
  std::vector<PciPlace> places;
  for (size_t i = 0; i < devices.size(); ++i) places.push_back(devices[i].place());
  return nearestOf(places, gpu);
}

std::vector<size_t> devicesFor(const RdmaDevices& devices, int gpu) {
  const IbSettings& settings = devices[0].settings();
  if (gpu >= 0 && settings.hca.empty()) {
    try {
      return nearestDevices(devices, placeOfGpu(gpu, settings.sysfs));
    } catch (const Error&) {  // no driver, or no such GPU: memory of it says so
    }
  }
  std::vector<size_t> all(devices.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

}  // namespace ctran
