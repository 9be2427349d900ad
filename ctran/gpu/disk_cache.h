#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ctran::gpu {

__extension__ using Uint128 = unsigned __int128;

/// 128-bit FNV-1a over everything added, as 32 hexadecimal digits.
class Digest {
 public:
  Digest& add(std::string_view bytes);
  std::string hex() const;

 private:
  Uint128 state_ = (Uint128{0x6c62272e07bb0142ULL} << 64) | 0x62b821756295c58dULL;
};

/// Results of expensive, deterministic work, kept as files: one producer per host and key, others
/// wait for it. A file is published by rename and carries its length and digest, so a torn or
/// altered one is noticed and made again. A directory that cannot be written costs only time.
class DiskCache {
 public:
  explicit DiskCache(std::string directory) : directory_(std::move(directory)) {}

  /// `$XDG_CACHE_HOME/torchcomms`, else `~/.cache/torchcomms`, else (no home) a directory of
  /// this user in /tmp.
  static std::string defaultDirectory();

  /// The bytes stored under `key` (letters, digits, '-', '_', '.'), made by `produce` if there are
  /// none. An exception of `produce` passes through and stores nothing.
  std::string get(const std::string& key, const std::function<std::string()>& produce) const;

 private:
  std::string directory_;
};

}  // namespace ctran::gpu
