#include "ctran/base/checked.h"

#include <cstddef>

#include "ctran/base/error.h"

namespace ctran {
namespace {

constexpr unsigned kLastCodePoint = 0x10ffff;

unsigned char byteAt(std::string_view text, size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

/// How many bytes the character has that starts there; 0 if none does that may be printed.
size_t charactersBytes(std::string_view text, size_t at) {
  const unsigned char first = byteAt(text, at);
  if (first < 0x80) return first == '\n' || (first >= 0x20 && first != 0x7f) ? 1 : 0;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  unsigned code = first & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const unsigned char next = byteAt(text, at + i);
    if ((next & 0xc0) != 0x80) return 0;
    code = code << 6 | (next & 0x3f);
  }
  constexpr unsigned kLeast[] = {0, 0, 0xa0, 0x800, 0x10000};  // U+0080 to U+009F are controls
  const bool isSurrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kLeast[bytes] || code > kLastCodePoint || isSurrogate ? 0 : bytes;
}

}  // namespace

void Checked::reject(uint64_t most, int rank, std::string_view what,
                     const std::string& operation) const {
  throw Error(ErrorKind::Mismatch,
              "rank " + std::to_string(rank) + " tells " +
                  (wraps_ ? "more than 64 bits can count of" : std::to_string(value_)) + " " +
                  std::string(what) + ", where " + std::to_string(most) + " is the most",
              {rank}, operation);
}

std::string printable(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = charactersBytes(text, at);
    result += bytes == 0 ? std::string_view("?") : text.substr(at, bytes);
    at += bytes == 0 ? 1 : bytes;
  }
  return result;
}

}  // namespace ctran
