#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ctran/base/json.h"

namespace ctran {

/// What a host is made of, as its kernel reports it. Lists are in the order of their numbers.
struct Host {
  struct Core {
    std::vector<int> cpus;  ///< its hardware threads
    int socket = 0;
    int node = 0;
  };
  struct Cache {
    int level = 0;
    size_t bytes = 0;
    std::vector<int> cpus;  ///< the CPUs that share it
  };
  struct Nic {
    std::string name;
    int node = -1;      ///< -1: not reported, as for virtual devices
    int megabits = -1;  ///< megabits per second; -1: not reported
    bool up = false;
    bool virtualDevice = false;
  };
  std::string cpuModel;
  std::vector<Core> cores;
  std::vector<Cache> caches;  ///< data caches only
  int nodes = 1;
  /// Distances of NUMA nodes, [from][to], as the firmware reports them; 10 is the node itself.
  std::vector<std::vector<int>> distances;
  std::vector<Nic> nics;

  /// Reads the host. `root` is where /sys and /proc are, for tests. What is missing there is left
  /// out.
  static Host read(const std::string& root = "");

  int nodeOf(int cpu) const;    ///< -1 if there is no such CPU
  int socketOf(int cpu) const;  ///< -1 if there is no such CPU
  /// Returns how far two CPUs are from each other: 0 the same core, 1 a shared last-level cache, 2
  /// the same NUMA node, 3 the same socket, 4 anything else.
  int distance(int a, int b) const;
  /// Returns how far a network card is from a CPU: the distance of their nodes, 10 if it is not
  /// known.
  int distance(const Nic& nic, int cpu) const;

  /// Returns sixteen hex digits that are the same on machines with the same model, cores, caches
  /// and nodes.
  std::string key() const;
  Json toJson() const;
};

/// Returns this machine, read once.
const Host& thisHost();

}  // namespace ctran
