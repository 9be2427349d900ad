#include "torchcomms/csrc/backends/nccl/hints.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <stdexcept>

#include "torchcomms/csrc/backends/unknown_hint.hpp"

namespace torch::comms::nccl {

namespace {

[[noreturn]] void invalid(const std::string& key, const std::string& value) {
  throw std::invalid_argument("Invalid hint value for key '" + key + "': " + value);
}

int parseInt(const std::string& key, const std::string& value) {
  int number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end) invalid(key, value);
  return number;
}

int parsePositive(const std::string& key, const std::string& value) {
  const int number = parseInt(key, value);
  if (number <= 0) invalid(key, value);
  return number;
}

bool parseBool(const std::string& key, const std::string& value) {
  std::string lower = value;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"1", "true", "yes", "y", "on"}) {
    if (lower == yes) return true;
  }
  for (const char* no : {"0", "false", "no", "n", "off"}) {
    if (lower == no) return false;
  }
  invalid(key, value);
}

struct ConfigHint {
  int Config::*member;
  bool truth;  ///< also spelled true and false
  int since;
};

const std::map<std::string, ConfigHint> kConfigHints{
    {"blocking", {&Config::blocking, true, 21400}},
    {"cgaClusterSize", {&Config::cgaClusterSize, false, 21700}},
    {"cga_cluster_size", {&Config::cgaClusterSize, false, 21700}},
    {"minCTAs", {&Config::minCTAs, false, 21700}},
    {"maxCTAs", {&Config::maxCTAs, false, 21700}},
    {"splitShare", {&Config::splitShare, true, 21800}},
    {"trafficClass", {&Config::trafficClass, false, 22700}},
    {"collnetEnable", {&Config::collnetEnable, true, 22700}},
    {"CTAPolicy", {&Config::CTAPolicy, false, 22700}},
    {"shrinkShare", {&Config::shrinkShare, true, 22700}},
    {"nvlsCTAs", {&Config::nvlsCTAs, false, 22700}},
};

bool isHighPriority(const std::string& key) {
  return key == "is_high_priority_stream" || key == "high_priority_stream" ||
         (key.rfind("torchcomm::", 0) == 0 && key.size() > 22 &&
          key.compare(key.size() - 22, 22, "::high_priority_stream") == 0);
}

}  // namespace

bool wantsHighPriority(const torch::comms::Hints& hints) {
  return std::any_of(hints.begin(), hints.end(), [](const auto& hint) {
    return isHighPriority(hint.first) && parseBool(hint.first, hint.second);
  });
}

Hints parseHints(const torch::comms::Hints& hints, const Library& library) {
  Hints parsed;
  parsed.config.blocking = 1;
  for (const auto& [key, value] : hints) {
    const auto known = kConfigHints.find(key);
    if (known != kConfigHints.end()) {
      const ConfigHint& hint = known->second;
      if (library.version < hint.since) library.tooOld(("Hint " + key).c_str(), hint.since);
      const bool word = hint.truth && (value.empty() || !std::isdigit(value[0]));
      parsed.config.*hint.member = word ? parseBool(key, value) : parseInt(key, value);
    } else if (isHighPriority(key)) {
      parsed.highPriority = parseBool(key, value);
    } else if (key == "max_event_pool_size") {
      parsed.mostIdleEvents = static_cast<size_t>(parsePositive(key, value));
    } else if (key == "garbage_collect_interval_ms") {
      parsed.checkInterval = std::chrono::milliseconds(parsePositive(key, value));
    } else if (key == "enable_cuda_graph_support") {
      parsed.watchReplays = parseBool(key, value);
    } else if (key == "graph_timeout_check_interval_ms") {
      parsed.replayInterval = std::chrono::milliseconds(parsePositive(key, value));
    } else if (key == "netName") {
      parsed.netName = value;
    } else if (key == "commName") {
      if (library.version < 22700) library.tooOld("Hint commName", 22700);
      parsed.commName = value;
    } else {
      noteUnknownHint(library.vendor->backend, key);
    }
  }
  return parsed;
}

}  // namespace torch::comms::nccl
