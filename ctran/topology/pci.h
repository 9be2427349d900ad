#pragma once

#include <string>
#include <vector>

#include "ctran/topology/host.h"

namespace ctran {

/// Where a device of the PCI bus is, as sysfs reports it.
struct PciPlace {
  /// The way from the root complex to the device: "pci0000:00", "0000:00:01.0", "0000:01:00.0".
  /// Empty if it is not known, or the device is on no bus.
  std::vector<std::string> path;
  int node = -1;  ///< -1: not reported

  /// Reads the place of the device whose directory in sysfs, or a link to it, is given:
  /// /sys/class/infiniband/mlx5_0/device, /sys/bus/pci/devices/0000:01:00.0.
  static PciPlace of(const std::string& directory);

  /// Returns how far two devices are from each other: the number of steps between them if they are
  /// below a common bridge, 100 at one root complex, else as far as the nodes are.
  int distance(const PciPlace& other) const;
  /// Returns how far the device is from the cores of a NUMA node: 200 from those of its own node,
  /// 300 from those of another. 250 if a node is not known: then it is so for every device, or it
  /// is no reason against this one.
  int distance(int otherNode) const;
};

/// Returns the places that are as near to a device as the nearest one, by their numbers.
std::vector<size_t> nearestOf(const std::vector<PciPlace>& places, const PciPlace& device);

/// Returns the NUMA node that has all these CPUs; -1 if there is none.
int commonNode(const Host& host, const std::vector<int>& cpus);
/// Returns the CPUs that this thread may run on.
std::vector<int> allowedCpus();

}  // namespace ctran
