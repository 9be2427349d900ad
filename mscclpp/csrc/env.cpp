#include "mscclpp/env.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>

namespace mscclpp {
namespace {

std::string text(const char* name, const std::string& otherwise = {}) {
  const char* value = std::getenv((std::string("MSCCLPP_") + name).c_str());
  return value == nullptr || *value == '\0' ? otherwise : value;
}

bool flag(const char* name) {
  const std::string value = text(name);
  return !value.empty() && value != "0" && value != "false";
}

int positive(const char* name, int otherwise) {
  const std::string value = text(name, std::to_string(otherwise));
  int number = 0;
  const char* const end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number <= 0) {
    throw Error(std::string("MSCCLPP_") + name + "=" + value + " is no positive number",
                ErrorCode::InvalidUsage);
  }
  return number;
}

std::string found(const std::map<std::string_view, const char*>& names, std::string_view name) {
  const auto at = names.find(name);
  return at == names.end() ? "" : at->second;
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

/// Unless the program has set it.
void set(const char* name, const std::string& value) {
  if (!value.empty()) ::setenv(name, value.c_str(), /*overwrite*/ 0);
}

}  // namespace

Env::Env()
    : hostid(text("HOSTID")),
      commId(text("COMM_ID")),
      secret(text("SECRET")),
      cacheDir(text("CACHE_DIR", std::string(std::getenv("HOME") ? std::getenv("HOME") : "/tmp") +
                                     "/.cache/mscclpp")),
      timeoutSeconds(positive("TIMEOUT", 60)),
      debug(text("DEBUG")),
      debugSubsys(text("DEBUG_SUBSYS")),
      debugFile(text("DEBUG_FILE")),
      logLevel(text("LOG_LEVEL")),
      logSubsys(text("LOG_SUBSYS")),
      logFile(text("LOG_FILE")),
      hcaDevices(text("HCA_DEVICES")),
      ibvSo(text("IBV_SO")),
      ibvMode(text("IBV_MODE")),
      ibGidIndex(text("IB_GID_INDEX")),
      socketFamily(text("SOCKET_FAMILY")),
      socketIfname(text("SOCKET_IFNAME")),
      npkitDumpDir(text("NPKIT_DUMP_DIR")),
      cudaIpcUseDefaultStream(flag("CUDAIPC_USE_DEFAULT_STREAM")),
      ncclSharedLibPath(text("NCCL_LIB_PATH")),
      forceNcclFallbackOperation(text("FORCE_NCCL_FALLBACK_OPERATION")),
      ncclSymmetricMemory(flag("NCCL_SYMMETRIC_MEMORY")),
      forceDisableNvls(flag("FORCE_DISABLE_NVLS")),
      forceDisableGdr(flag("FORCE_DISABLE_GDR")) {
  adopt();
}

void Env::adopt() const {
  const std::string level = found({{"VERSION", "warn"},
                                   {"NONE", "error"},
                                   {"ERROR", "error"},
                                   {"WARN", "warn"},
                                   {"INFO", "info"},
                                   {"DEBUG", "debug"},
                                   {"TRACE", "trace"},
                                   {"ABORT", "trace"}},
                                  logLevel.empty() ? debug : logLevel);
  if (std::getenv("CTRAN_LOG") == nullptr) set("TORCHCOMM_LOG", level);
  set("TORCHCOMM_LOG_TO", logFile.empty() ? debugFile : logFile);
  set("CTRAN_IB_HCA", hcaDevices.empty() ? "" : "=" + hcaDevices);
  set("CTRAN_VERBS_LIBRARY", ibvSo);
  set("CTRAN_TCP_FAMILY", found({{"AF_INET", "ipv4"}, {"AF_INET6", "ipv6"}}, socketFamily));
  set("CTRAN_TCP_INTERFACES", interfaces(socketIfname));
  set("CTRAN_IB_GID_INDEX", ibGidIndex);
  set("CTRAN_GPU_DIRECT", forceDisableGdr ? "off" : "");
  for (const char* name :
       {"DEBUG_SUBSYS", "LOG_SUBSYS", "IBV_MODE", "NPKIT_DUMP_DIR", "CUDAIPC_USE_DEFAULT_STREAM",
        "NCCL_LIB_PATH", "FORCE_NCCL_FALLBACK_OPERATION", "NCCL_SYMMETRIC_MEMORY"}) {
    // Where there is a Python, `import mscclpp` has told.
    if (text(name).empty() || ::dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr) continue;
    std::fprintf(stderr, "mscclpp: MSCCLPP_%s has no effect here\n", name);
  }
}

std::shared_ptr<Env> env() {
  static const std::shared_ptr<Env> once(new Env);
  return once;
}

}  // namespace mscclpp
