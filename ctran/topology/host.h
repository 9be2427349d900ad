#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ctran/base/json.h"

namespace ctran {

/// What a host is made of, as its kernel tells. Lists are in order of their numbers.
struct Host {
  struct Core {
    std::vector<int> cpus;  ///< its hardware threads
    int socket = 0;
    int node = 0;
  };
  struct Cache {
    int level = 0;
    size_t bytes = 0;
    std::vector<int> cpus;  ///< that share it
  };
  struct Nic {
    std::string name;
    int node = -1;      ///< -1: not told, as for virtual ones
    int megabits = -1;  ///< per second; -1: not told
    bool up = false;
    bool virtualDevice = false;
  };
  std::string cpuModel;
  std::vector<Core> cores;
  std::vector<Cache> caches;  ///< of data
  int nodes = 1;
  /// [from][to], 10 being the node itself, as the firmware tells.
  std::vector<std::vector<int>> distances;
  std::vector<Nic> nics;

  /// `root`: where /sys and /proc are, for tests. What is missing there is left out.
  static Host read(const std::string& root = "");

  int nodeOf(int cpu) const;    ///< -1 if there is no such CPU
  int socketOf(int cpu) const;  ///< -1 likewise
  /// How far two CPUs are: 0 the same core, 1 a shared last-level cache, 2 the same NUMA node, 3
  /// the same socket, 4 anything else.
  int distance(int a, int b) const;
  /// How far a network card is from a CPU: the distance of their nodes, 10 if it is not known.
  int distance(const Nic& nic, int cpu) const;

  /// The same on machines that are alike: model, cores, caches, nodes. Sixteen hex digits.
  std::string key() const;
  Json toJson() const;
};

/// Of this machine, read once.
const Host& thisHost();

}  // namespace ctran
