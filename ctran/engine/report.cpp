#include "ctran/engine/report.h"

#include <algorithm>
#include <cstdio>

#include "ctran/base/log.h"
#include "ctran/engine/communicator.h"
#include "ctran/os/process.h"
#include "ctran/os/shared_memory.h"

namespace ctran {
namespace {

constexpr int kMostHosts = 8;  // whose ranks are listed

std::string rangeOf(std::span<const int> ranks) {
  const bool inARow = ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  if (ranks.size() > 1 && inARow) {
    return std::to_string(ranks.front()) + "-" + std::to_string(ranks.back());
  }
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

std::string hostsOf(const HostMap& map) {
  if (map.hosts() == 1) return "1 host";
  std::string text = std::to_string(map.hosts()) + " hosts (ranks ";
  for (int h = 0; h < std::min(map.hosts(), kMostHosts); ++h) {
    text += (h > 0 ? " | " : "") + rangeOf(map.ranks(h));
  }
  return text + (map.hosts() > kMostHosts ? " | ...)" : ")");
}

std::string transportsOf(Communicator& communicator) {
  std::string text = communicator.arena() != nullptr ? "shared memory" : "";
  Transport* transport = communicator.transport();
  if (transport == nullptr) return text.empty() ? "nothing to send over" : text;
  std::vector<std::string> names;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (communicator.map().hostOf(peer) == communicator.map().host()) continue;
    const std::string path = transport->connections(peer) > 0 ? transport->pathTo(peer) : "";
    if (!path.empty() && std::find(names.begin(), names.end(), path) == names.end()) {
      names.push_back(path);
    }
  }
  if (names.empty()) names.emplace_back(transport->name());
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// "all_reduce small, ring from 64 KB": what serves so many bytes of each rank, and more.
std::string choicesOf(const Communicator& communicator, CollectiveKind kind) {
  std::string text, before;
  for (size_t bytes = 8; bytes <= size_t{1} << 28; bytes *= 4) {
    const std::string name = communicator.explain(kind, bytes, DataType::Float32).algorithm;
    if (name == before) continue;
    text += (before.empty() ? " " : ", ") + name;
    if (!before.empty()) text += " from " + printedBytes(static_cast<double>(bytes));
    before = name;
  }
  return std::string(nameOf(kind)) + text;
}

std::string choicesText(const Communicator& communicator) {
  using Kind = CollectiveKind;
  std::string text;
  for (const Kind kind :
       {Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll, Kind::Broadcast}) {
    text += (text.empty() ? "" : "; ") + choicesOf(communicator, kind);
  }
  return text;
}

}  // namespace

std::string printedBytes(double bytes) {
  const char* const units[] = {"B", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  snprintf(text, sizeof text, "%.3g %s", bytes, units[unit]);
  return text;
}

void logCreation(Communicator& c) {
  const LogLevel level = c.rank() == 0 ? LogLevel::Info : LogLevel::Debug;
  if (!logs(LogComponent::Engine, level)) return;
  const auto bytes = static_cast<double>(sharedMemoryBytes(c.recordedAt()));
  std::string text = "communicator '" + c.name() + "': rank " + std::to_string(c.rank()) + " of " +
                     std::to_string(c.size()) + " on " + processName() + "; " + hostsOf(c.map()) +
                     "; " + transportsOf(c) + "; " + printedBytes(bytes) + " shared by " +
                     std::to_string(c.neighbours().size()) + " here";
  if (c.isForGpus()) {
    text += "; for tensors of GPUs";
  } else if (c.size() > 1) {
    text += "; " + choicesText(c);
  }
  logText(LogComponent::Engine, level, text);
}

}  // namespace ctran
