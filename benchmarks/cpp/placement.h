#pragma once

#include <sched.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace bench {

/// The CPUs this process may use, one of each core before any second hardware thread.
inline std::vector<int> allowedCpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    throw std::system_error(errno, std::generic_category(), "sched_getaffinity");
  }
  std::vector<int> first, second;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
    int leader = cpu;
    siblings >> leader;
    (leader == cpu || !CPU_ISSET(leader, &set) ? first : second).push_back(cpu);
  }
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// "auto": a CPU for each rank, none at all when there are too few; "none"; else "0,1,…".
inline std::vector<int> parsePlacement(const std::string& text, int ranks) {
  if (text == "none") return {};
  std::vector<int> cpus;
  if (text == "auto") {
    cpus = allowedCpus();
    return int(cpus.size()) < ranks ? std::vector<int>{} : cpus;
  }
  std::istringstream list(text);
  for (std::string word; std::getline(list, word, ',');) cpus.push_back(std::stoi(word));
  if (int(cpus.size()) < ranks) throw std::invalid_argument("--pin lists fewer CPUs than ranks");
  return cpus;
}

/// Binds the calling process to `cpus[rank]`; to nothing when there is no list.
inline void pin(const std::vector<int>& cpus, int rank) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpus.at(rank), &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    throw std::system_error(errno, std::generic_category(), "sched_setaffinity");
  }
}

}  // namespace bench
