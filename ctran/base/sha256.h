#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ctran {

using Digest = std::array<std::byte, 32>;

/// SHA-256 (FIPS 180-4), for handshakes: compact rather than fast.
class Sha256 {
 public:
  Sha256& add(std::span<const std::byte> data);
  Digest finish();  ///< may be called once

 private:
  void block(const std::byte* data);

  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::byte pending_[64];
  uint64_t bytes_ = 0;
};

/// HMAC-SHA256 (RFC 2104).
Digest hmacSha256(std::span<const std::byte> key, std::span<const std::byte> message);

/// Looks at every byte, so that the time it takes reveals nothing.
bool sameDigest(const Digest& a, const Digest& b);

}  // namespace ctran
