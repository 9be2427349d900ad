#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ctran {

inline std::string hex(uint64_t value) {
  char digits[16];
  return {digits, std::to_chars(digits, digits + sizeof digits, value, 16).ptr};
}

/// Takes apart a text of hexadecimal numbers that somebody else has written.
class HexReader {
 public:
  explicit HexReader(std::string_view text) : rest_(text) {}

  bool takes(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }
  /// A number of at most `most`, up to the next mark.
  std::optional<uint64_t> number(uint64_t most) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value, 16);
    if (error != std::errc() || value > most) return std::nullopt;
    rest_.remove_prefix(end - rest_.data());
    return value;
  }
  bool isAtEnd() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace ctran
