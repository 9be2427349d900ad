#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ctran::gpu {

__extension__ using Uint128 = unsigned __int128;

/// Hashes everything added by 128-bit FNV-1a, to 32 hexadecimal digits.
class Digest {
 public:
  Digest& add(std::string_view bytes);
  std::string hex() const;

 private:
  Uint128 state_ = (Uint128{0x6c62272e07bb0142ULL} << 64) | 0x62b821756295c58dULL;
};

/// Results of expensive, deterministic work, kept as files. One process per host and key makes a
/// result; others wait for it. A file is published by rename and has its length and digest, so a
/// torn or altered one is noticed and made again. A directory that cannot be written costs only
/// time.
class DiskCache {
 public:
  explicit DiskCache(std::string directory) : directory_(std::move(directory)) {}

  /// Returns `$XDG_CACHE_HOME/torchcomms`, else `~/.cache/torchcomms`, else (no home) a directory
  /// of this user in /tmp.
  static std::string defaultDirectory();

  /// Returns the bytes stored under `key` (letters, digits, '-', '_', '.'); `produce` makes them if
  /// there are none. An exception of `produce` passes through, and nothing is stored.
  std::string get(const std::string& key, const std::function<std::string()>& produce) const;

 private:
  std::string directory_;
};

}  // namespace ctran::gpu
