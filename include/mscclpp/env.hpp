#pragma once

#include <memory>
#include <string>

#include <mscclpp/core.hpp>

namespace mscclpp {

/// What the environment says, read once per process.
class MSCCLPP_API Env {
 public:
  const std::string hostid;    ///< MSCCLPP_HOSTID: makes this host another one
  const std::string commId;    ///< MSCCLPP_COMM_ID: "address:port" for createUniqueId
  const std::string secret;    ///< MSCCLPP_SECRET: who joins at a port has to know it
  const std::string cacheDir;  ///< MSCCLPP_CACHE_DIR: ~/.cache/mscclpp
  const int timeoutSeconds;    ///< MSCCLPP_TIMEOUT: of a wait in a kernel or on a proxy; 60

 private:
  Env();
  friend std::shared_ptr<Env> env();
};

MSCCLPP_API std::shared_ptr<Env> env();

}  // namespace mscclpp
