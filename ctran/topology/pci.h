#pragma once

#include <string>
#include <vector>

#include "ctran/topology/host.h"

namespace ctran {

/// Where a device of the PCI bus is, as sysfs tells.
struct PciPlace {
  /// From the root complex to the device: "pci0000:00", "0000:00:01.0", "0000:01:00.0". Empty if it
  /// is not known, or the device is on no bus.
  std::vector<std::string> path;
  int node = -1;  ///< -1: not told

  /// Of the device whose directory in sysfs that is, or a link to it:
  /// /sys/class/infiniband/mlx5_0/device, /sys/bus/pci/devices/0000:01:00.0.
  static PciPlace of(const std::string& directory);

  /// How far two devices are from each other: below a common bridge the number of steps between
  /// them, 100 at one root complex, then as the nodes are.
  int distance(const PciPlace& other) const;
  /// How far it is from the cores of a NUMA node: 200 of the same, 300 of another. 250 if one is
  /// not known, which is then so for every device, or says nothing against this one.
  int distance(int otherNode) const;
};

/// The NUMA node that has all these CPUs; -1 if there is none.
int commonNode(const Host& host, const std::vector<int>& cpus);
/// The CPUs that this thread may run on.
std::vector<int> allowedCpus();

}  // namespace ctran
