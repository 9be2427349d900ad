#include "environment.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string_view>

namespace mscclpp::environment {
namespace {

using Names = std::map<std::string_view, const char*>;

constexpr int kSeconds = 60;

std::string fullNameOf(const std::string& name) { return "MSCCLPP_" + name; }

std::string said(const std::string& name) {
  const char* const value = std::getenv(fullNameOf(name).c_str());
  return value == nullptr ? "" : value;
}

template <int (*Convert)(int)>
std::string inCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(Convert(c)); });
  return text;
}

/// In whatever case.
std::string found(const Names& names, const std::string& name) {
  const auto at = names.find(inCase<std::toupper>(name));
  return at == names.end() ? "" : at->second;
}

std::string firstOf(const char* name, const char* other) {
  const std::string one = said(name);
  return one.empty() ? said(other) : one;
}

/// Of MSCCL++: the beginnings of names, behind '=' whole ones, behind '^' all but these.
std::string interfaces(std::string_view names) {
  std::string listed = names.starts_with('^') ? "^" : "";
  names.remove_prefix(listed.size());
  const bool whole = names.starts_with('=');
  names.remove_prefix(whole ? 1 : 0);
  const size_t prefix = listed.size();
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    if (name.empty()) continue;
    if (listed.size() > prefix) listed += ',';
    listed += std::string(name) + (whole ? "" : "*");
  }
  return listed.size() > prefix ? listed : "";
}

}  // namespace

std::string text(const std::string& name) {
  std::string value = said(name);
  if (!value.empty() || name != "CACHE_DIR") return value;
  const char* const home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "/tmp") + "/.cache/mscclpp";
}

bool flag(const std::string& name) {
  const std::string value = inCase<std::tolower>(said(name));
  return !value.empty() && value != "0" && value != "false";
}

int seconds(const std::string& name) {
  const std::string value = said(name);
  if (value.empty()) return kSeconds;
  int number = 0;
  const char* const end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number <= 0) {
    throw std::invalid_argument(fullNameOf(name) + "=" + value + " is no positive number");
  }
  return number;
}

std::vector<std::pair<std::string, std::string>> adopted() {
  static const Names levels{{"VERSION", "warn"}, {"NONE", "error"}, {"ERROR", "error"},
                            {"WARN", "warn"},    {"INFO", "info"},  {"DEBUG", "debug"},
                            {"TRACE", "trace"},  {"ABORT", "trace"}};
  static const Names families{{"AF_INET", "ipv4"}, {"AF_INET6", "ipv6"}};
  std::vector<std::pair<std::string, std::string>> all;
  const auto add = [&](const char* name, std::string value) {
    if (!value.empty()) all.emplace_back(name, std::move(value));
  };
  if (std::getenv("CTRAN_LOG") == nullptr) {
    add("TORCHCOMM_LOG", found(levels, firstOf("LOG_LEVEL", "DEBUG")));
  }
  add("TORCHCOMM_LOG_TO", firstOf("LOG_FILE", "DEBUG_FILE"));
  const std::string devices = said("HCA_DEVICES");
  add("CTRAN_IB_HCA", devices.empty() ? "" : "=" + devices);
  add("CTRAN_VERBS_LIBRARY", said("IBV_SO"));
  add("CTRAN_TCP_FAMILY", found(families, said("SOCKET_FAMILY")));
  add("CTRAN_TCP_INTERFACES", interfaces(said("SOCKET_IFNAME")));
  add("CTRAN_IB_GID_INDEX", said("IB_GID_INDEX"));
  add("CTRAN_GPU_DIRECT", flag("FORCE_DISABLE_GDR") ? "off" : "");
  return all;
}

std::vector<std::string> idle() {
  std::vector<std::string> names;
  for (const Variable& one : kVariables) {
    if (one.isIdle && !said(one.name).empty()) names.push_back(fullNameOf(one.name));
  }
  return names;
}

}  // namespace mscclpp::environment
