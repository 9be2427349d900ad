#include "mscclpp/env.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "environment.h"

namespace mscclpp {

using environment::flag;
using environment::text;

namespace {

int timeout() {
  try {
    return environment::seconds("TIMEOUT");
  } catch (const std::invalid_argument& error) {
    throw Error(error.what(), ErrorCode::InvalidUsage);
  }
}

}  // namespace

Env::Env()
    : hostid(text("HOSTID")),
      commId(text("COMM_ID")),
      secret(text("SECRET")),
      cacheDir(text("CACHE_DIR")),
      timeoutSeconds(timeout()),
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
  for (const auto& [name, value] : environment::adopted()) {
    ::setenv(name.c_str(), value.c_str(), /*overwrite*/ 0);
  }
  // Where there is a Python, `import mscclpp` has told.
  if (::dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr) return;
  for (const std::string& name : environment::idle()) {
    std::fprintf(stderr, "mscclpp: %s has no effect here\n", name.c_str());
  }
}

std::shared_ptr<Env> env() {
  static const std::shared_ptr<Env> once(new Env);
  return once;
}

}  // namespace mscclpp
