#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/verbs/abi.h"

namespace ctran {

/// What the other end must know to connect, as a text that bind() gives and connect() takes.
struct RdmaCard {
  static constexpr size_t kMostRails = 8;
  static constexpr size_t kMostQps = 16;

  /// One device of the connection.
  struct Rail {
    uint32_t device = 0;  ///< its place in the keys of memory
    ibverbx::ibv_gid gid{};
    uint32_t lid = 0, mtu = 0, psn = 0;
    uint32_t reads = 1;  ///< reads that it serves at a time
    std::vector<uint32_t> qpNums;
  };
  uint64_t token = 0;  ///< RdmaDevices::token()
  std::vector<Rail> rails;

  std::string url() const;
  /// Throws Error(InvalidArgument) for what is none; every number is within its bounds.
  static RdmaCard parse(std::string_view url);
};

}  // namespace ctran
