#pragma once

#include <string>
#include <vector>

#include "ctran/rdma/devices.h"

namespace ctran {

/// Where a CUDA device is on the bus. `sysfs`: where /sys is, for tests. Throws Error of the
/// driver.
PciPlace placeOfGpu(int device, const std::string& sysfs);

/// Those that are as near to that GPU as the nearest, by their numbers.
std::vector<size_t> nearestDevices(const RdmaDevices& devices, const PciPlace& gpu);

/// Those for transfers of a CUDA device's memory: the nearest, or all where CTRAN_IB_HCA names
/// them, or where nobody says where the GPU is. All for memory of the host, which is -1.
std::vector<size_t> devicesFor(const RdmaDevices& devices, int gpu);

}  // namespace ctran
