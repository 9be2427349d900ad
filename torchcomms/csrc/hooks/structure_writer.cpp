#include "torchcomms/csrc/hooks/structure_writer.hpp"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>

namespace torch::comms {

namespace {

/// `value` in the fewest digits that read back the same.
template <typename Number>
void append(std::string& out, Number value) {
  std::array<char, 64> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  out.append(digits.data(), end);
}

}  // namespace

void JsonWriter::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

void JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  out_ += bracket;
  first_ = false;
}

void JsonWriter::quote(std::string_view value) {
  out_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      out_ += "\\u00";
      out_ += kDigits[static_cast<unsigned char>(c) >> 4];
      out_ += kDigits[c & 15];
    } else {
      out_ += c;
    }
  }
  out_ += '"';
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  out_ += ':';
  first_ = true;
}

void JsonWriter::text(std::string_view value) {
  separate();
  quote(value);
}

void JsonWriter::integer(int64_t value) {
  separate();
  append(out_, value);
}

void JsonWriter::number(double value) {
  separate();
  if (std::isfinite(value)) {
    append(out_, value);
  } else {
    out_ += "null";
  }
}

void JsonWriter::boolean(bool value) {
  separate();
  out_ += value ? "true" : "false";
}

void JsonWriter::none() {
  separate();
  out_ += "null";
}

void PickleWriter::text(std::string_view value) {  // BINUNICODE, length in little endian
  out_ += 'X';
  const auto size = static_cast<uint32_t>(value.size());
  for (int shift = 0; shift < 32; shift += 8) out_ += static_cast<char>(size >> shift & 255);
  out_ += value;
}

void PickleWriter::integer(int64_t value) {  // LONG1 of eight bytes, in little endian
  out_ += '\x8a';
  out_ += '\x08';
  for (int shift = 0; shift < 64; shift += 8) {
    out_ += static_cast<char>(static_cast<uint64_t>(value) >> shift & 255);
  }
}

void PickleWriter::number(double value) {  // BINFLOAT, in big endian
  out_ += 'G';
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift & 255);
}

}  // namespace torch::comms
