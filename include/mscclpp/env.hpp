#pragma once

#include <memory>
#include <string>

#include <mscclpp/core.hpp>

namespace mscclpp {

/// What the environment says, read once per process: MSCCLPP_HOSTID and so on. The engine goes by
/// those for which it has its own, where these are not set (docs/mscclpp/differences.md); of those
/// that have no effect a line on stderr tells.
class MSCCLPP_API Env {
 public:
  const std::string hostid;    ///< makes this host another one
  const std::string commId;    ///< "address:port" for createUniqueId
  const std::string secret;    ///< who joins at a port has to know it
  const std::string cacheDir;  ///< ~/.cache/mscclpp
  const int timeoutSeconds;    ///< MSCCLPP_TIMEOUT: of a wait in a kernel or on a proxy; 60
  const std::string debug, debugSubsys, debugFile;
  const std::string logLevel, logSubsys, logFile;
  const std::string hcaDevices, ibvSo, ibvMode, ibGidIndex;
  const std::string socketFamily, socketIfname;
  const std::string npkitDumpDir;
  const bool cudaIpcUseDefaultStream;
  const std::string ncclSharedLibPath, forceNcclFallbackOperation;
  const bool ncclSymmetricMemory;
  const bool forceDisableNvls, forceDisableGdr;

 private:
  Env();
  void adopt() const;
  friend std::shared_ptr<Env> env();
};

MSCCLPP_API std::shared_ptr<Env> env();

}  // namespace mscclpp
