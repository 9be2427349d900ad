#pragma once

#include <string>
#include <utility>
#include <vector>

/// The variables of the environment, for libmscclpp and for Python.
namespace mscclpp::environment {

enum class Kind { Text, Flag, Seconds };

struct Variable {
  const char* name;       ///< behind MSCCLPP_
  const char* attribute;  ///< of mscclpp.Env
  Kind kind = Kind::Text;
  bool isIdle = false;  ///< it has no effect here
};

/// All of them.
inline constexpr Variable kVariables[] = {
    {"HOSTID", "hostid"},
    {"COMM_ID", "comm_id"},
    {"SECRET", "secret"},
    {"CACHE_DIR", "cache_dir"},
    {"TIMEOUT", "timeout_seconds", Kind::Seconds},
    {"DEBUG", "debug"},
    {"DEBUG_SUBSYS", "debug_subsys", Kind::Text, true},
    {"DEBUG_FILE", "debug_file"},
    {"LOG_LEVEL", "log_level"},
    {"LOG_SUBSYS", "log_subsys", Kind::Text, true},
    {"LOG_FILE", "log_file"},
    {"HCA_DEVICES", "hca_devices"},
    {"IBV_SO", "ibv_so"},
    {"IBV_MODE", "ibv_mode", Kind::Text, true},
    {"SOCKET_FAMILY", "socket_family"},
    {"SOCKET_IFNAME", "socket_ifname"},
    {"NPKIT_DUMP_DIR", "npkit_dump_dir", Kind::Text, true},
    {"CUDAIPC_USE_DEFAULT_STREAM", "cuda_ipc_use_default_stream", Kind::Flag, true},
    {"NCCL_LIB_PATH", "nccl_shared_lib_path", Kind::Text, true},
    {"FORCE_NCCL_FALLBACK_OPERATION", "force_nccl_fallback_operation", Kind::Text, true},
    {"NCCL_SYMMETRIC_MEMORY", "nccl_symmetric_memory", Kind::Flag, true},
    {"FORCE_DISABLE_NVLS", "force_disable_nvls", Kind::Flag},
    {"FORCE_DISABLE_GDR", "force_disable_gdr", Kind::Flag},
    {"IB_GID_INDEX", "ib_gid_index"},
};

/// What one of them says now; of CACHE_DIR, what holds if it says nothing.
std::string text(const std::string& name);
/// Whether it says something else than "", "0" and "false".
bool flag(const std::string& name);
/// Of TIMEOUT; 60 if it says nothing. Throws std::invalid_argument if it is no positive number.
int seconds(const std::string& name);

/// The engine's variables that stand for those, and what they are to say where they are not set.
std::vector<std::pair<std::string, std::string>> adopted();
/// The full names of those that are set and have no effect.
std::vector<std::string> idle();

}  // namespace mscclpp::environment
