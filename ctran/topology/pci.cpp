#include "ctran/topology/pci.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace ctran {
namespace {

namespace fs = std::filesystem;

constexpr int kSameRoot = 100, kSameNode = 200, kUnknownNode = 250, kOtherNode = 300;

/// "0000:01:00.0"
bool isFunction(const std::string& name) {
  return std::count(name.begin(), name.end(), ':') == 2 && name.find('.') != std::string::npos;
}

}  // namespace

PciPlace PciPlace::of(const std::string& directory) {
  PciPlace place;
  std::error_code failed;
  const fs::path real = fs::canonical(directory, failed);
  if (failed) return place;
  std::ifstream(real / "numa_node") >> place.node;
  place.node = std::max(place.node, -1);
  for (const fs::path& part : real) {
    const std::string name = part;
    if (name.starts_with("pci") && name.find(':') != std::string::npos) {
      place.path = {name};
    } else if (!place.path.empty() && isFunction(name)) {
      place.path.push_back(name);
    }
  }
  return place;
}

int PciPlace::distance(const PciPlace& other) const {
  const auto [mine, theirs] =
      std::mismatch(path.begin(), path.end(), other.path.begin(), other.path.end());
  const auto common = mine - path.begin();
  if (common > 1) return static_cast<int>((path.end() - mine) + (other.path.end() - theirs));
  if (common == 1) return kSameRoot;
  return distance(other.node);
}

int PciPlace::distance(int otherNode) const {
  if (node < 0 || otherNode < 0) return kUnknownNode;
  return node == otherNode ? kSameNode : kOtherNode;
}

std::vector<size_t> nearestOf(const std::vector<PciPlace>& places, const PciPlace& device) {
  std::vector<size_t> nearest;
  int least = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const int distance = places[i].distance(device);
    if (nearest.empty() || distance < least) {
      nearest.clear();
      least = distance;
    }
    if (distance == least) nearest.push_back(i);
  }
  return nearest;
}

int commonNode(const Host& host, const std::vector<int>& cpus) {
  int node = -1;
  for (const int cpu : cpus) {
    const int one = host.nodeOf(cpu);
    if (one < 0 || (node >= 0 && one != node)) return -1;
    node = one;
  }
  return node;
}

std::vector<int> allowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace ctran
