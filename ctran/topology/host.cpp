#include "ctran/topology/host.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "ctran/base/sha256.h"

namespace ctran {
namespace {

namespace fs = std::filesystem;

std::string firstLineOf(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int intIn(const fs::path& path, int otherwise) {
  std::ifstream file(path);
  int value;
  return file >> value ? value : otherwise;
}

/// "0-2,5" is 0, 1, 2, 5.
std::vector<int> cpuListOf(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream in(text);
  for (int first; in >> first;) {
    int last = first;
    if (in.peek() == '-') {
      in.get();
      if (!(in >> last)) break;
    }
    for (int n = first; n <= last && numbers.size() < 65536; ++n) numbers.push_back(n);
    if (in.peek() == ',') in.get();
  }
  return numbers;
}

/// "32768K".
size_t cacheBytesOf(const std::string& text) {
  std::istringstream in(text);
  size_t number = 0;
  char unit = 0;
  in >> number >> unit;
  return unit == 'K' ? number << 10 : unit == 'M' ? number << 20 : number;
}

/// The entries of a directory that are `prefix` and a number, by number.
std::map<int, fs::path> numberedEntries(const fs::path& directory, const std::string& prefix) {
  std::map<int, fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory, none)) {
    const std::string name = entry.path().filename();
    const std::string digits = name.size() > prefix.size() ? name.substr(prefix.size()) : "";
    if (name.rfind(prefix, 0) != 0 || digits.empty()) continue;
    if (digits.find_first_not_of("0123456789") != std::string::npos || digits.size() > 6) continue;
    found[std::stoi(digits)] = entry.path();
  }
  return found;
}

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

std::string modelOf(const fs::path& cpuinfo) {
  std::ifstream file(cpuinfo);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(':') != std::string::npos) {
      const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
      return begin == std::string::npos ? "" : line.substr(begin);
    }
  }
  return "";
}

Host::Nic nicAt(const fs::path& path) {
  Host::Nic nic;
  nic.name = path.filename();
  nic.node = intIn(path / "device/numa_node", -1);
  nic.megabits = std::max(intIn(path / "speed", -1), -1);
  nic.up = firstLineOf(path / "operstate") == "up";
  std::error_code none;
  nic.virtualDevice = !fs::exists(path / "device", none);
  return nic;
}

}  // namespace

Host Host::read(const std::string& root) {
  Host host;
  host.cpuModel = modelOf(root + "/proc/cpuinfo");
  const fs::path system = root + "/sys/devices/system";

  std::map<int, int> nodeOfCpu;
  const auto nodes = numberedEntries(system / "node", "node");
  for (const auto& [node, path] : nodes) {
    for (const int cpu : cpuListOf(firstLineOf(path / "cpulist"))) nodeOfCpu[cpu] = node;
    host.distances.emplace_back();
    std::istringstream row(firstLineOf(path / "distance"));
    for (int distance; row >> distance;) host.distances.back().push_back(distance);
  }
  host.nodes = std::max<int>(1, static_cast<int>(nodes.size()));

  std::map<std::pair<int, int>, Core> cores;  // by socket and number
  std::set<std::pair<int, std::vector<int>>> seen;
  for (const auto& [cpu, path] : numberedEntries(system / "cpu", "cpu")) {
    if (intIn(path / "online", 1) == 0) continue;
    const int socket = std::max(intIn(path / "topology/physical_package_id", 0), 0);
    Core& core = cores[{socket, intIn(path / "topology/core_id", cpu)}];
    core.cpus.push_back(cpu);
    core.socket = socket;
    core.node = nodeOfCpu.count(cpu) != 0 ? nodeOfCpu[cpu] : 0;
    for (const auto& [index, cache] : numberedEntries(path / "cache", "index")) {
      if (firstLineOf(cache / "type") == "Instruction") continue;
      Cache one;
      one.level = intIn(cache / "level", 0);
      one.bytes = cacheBytesOf(firstLineOf(cache / "size"));
      one.cpus = cpuListOf(firstLineOf(cache / "shared_cpu_list"));
      if (one.bytes > 0 && seen.insert({one.level, one.cpus}).second) host.caches.push_back(one);
    }
  }
  for (auto& [name, core] : cores) host.cores.push_back(std::move(core));

  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root + "/sys/class/net", none)) {
    if (entry.path().filename() != "lo" && fs::is_directory(entry.path(), none)) {
      host.nics.push_back(nicAt(entry.path()));
    }
  }
  std::sort(host.nics.begin(), host.nics.end(),
            [](const Nic& a, const Nic& b) { return a.name < b.name; });
  return host;
}

int Host::nodeOf(int cpu) const {
  for (const Core& core : cores) {
    if (contains(core.cpus, cpu)) return core.node;
  }
  return -1;
}

int Host::socketOf(int cpu) const {
  for (const Core& core : cores) {
    if (contains(core.cpus, cpu)) return core.socket;
  }
  return -1;
}

int Host::distance(int a, int b) const {
  for (const Core& core : cores) {
    if (contains(core.cpus, a) && contains(core.cpus, b)) return 0;
  }
  int last = 0;
  for (const Cache& cache : caches) last = std::max(last, cache.level);
  for (const Cache& cache : caches) {
    if (cache.level == last && contains(cache.cpus, a) && contains(cache.cpus, b)) return 1;
  }
  if (nodeOf(a) == nodeOf(b)) return 2;
  return socketOf(a) == socketOf(b) ? 3 : 4;
}

int Host::distance(const Nic& nic, int cpu) const {
  const int node = nodeOf(cpu);
  const auto known = [&](int n) { return n >= 0 && n < static_cast<int>(distances.size()); };
  if (!known(node) || !known(nic.node)) return 10;
  const auto& row = distances[node];
  return nic.node < static_cast<int>(row.size()) ? row[nic.node] : 10;
}

std::string Host::key() const {
  std::ostringstream text;
  text << cpuModel << '|' << nodes << '|';
  std::map<std::pair<int, int>, int> perSocket;  // (socket, threads) -> cores
  for (const Core& core : cores) ++perSocket[{core.socket, static_cast<int>(core.cpus.size())}];
  for (const auto& [what, count] : perSocket) {
    text << what.first << ',' << what.second << ',' << count << ';';
  }
  std::map<std::pair<int, size_t>, int> kinds;
  for (const Cache& cache : caches) ++kinds[{cache.level, cache.bytes}];
  for (const auto& [what, count] : kinds) {
    text << what.first << ',' << what.second << ',' << count << ';';
  }
  const std::string all = text.str();
  const Digest digest = Sha256().add(std::as_bytes(std::span(all))).finish();
  std::string hex;
  for (size_t i = 0; i < 8; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(digest[i]));
    hex += digits;
  }
  return hex;
}

Json Host::toJson() const {
  Json json = Json::object();
  json.set("key", Json(key())).set("cpu", Json(cpuModel)).set("numa_nodes", Json(nodes));
  Json allCores = Json::array();
  for (const Core& core : cores) {
    Json cpus = Json::array();
    for (const int cpu : core.cpus) cpus.push(Json(cpu));
    Json one = Json::object();
    one.set("cpus", std::move(cpus)).set("socket", Json(core.socket)).set("node", Json(core.node));
    allCores.push(std::move(one));
  }
  Json allCaches = Json::array();
  for (const Cache& cache : caches) {
    Json cpus = Json::array();
    for (const int cpu : cache.cpus) cpus.push(Json(cpu));
    Json one = Json::object();
    one.set("level", Json(cache.level)).set("bytes", Json(static_cast<int64_t>(cache.bytes)));
    one.set("cpus", std::move(cpus));
    allCaches.push(std::move(one));
  }
  Json allNics = Json::array();
  for (const Nic& nic : nics) {
    Json one = Json::object();
    one.set("name", Json(nic.name)).set("node", Json(nic.node)).set("mbit", Json(nic.megabits));
    one.set("up", Json(nic.up)).set("virtual", Json(nic.virtualDevice));
    allNics.push(std::move(one));
  }
  json.set("cores", std::move(allCores)).set("caches", std::move(allCaches));
  json.set("nics", std::move(allNics));
  return json;
}

const Host& thisHost() {
  static const Host* const host = new Host(Host::read());  // threads may outlive static destructors
  return *host;
}

}  // namespace ctran
