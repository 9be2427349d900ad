#include "torchcomms/csrc/hooks/pickle.hpp"

#include <bit>
#include <cstdint>
#include <string_view>

namespace torch::comms {

namespace {

using ctran::Json;

void putText(std::string& out, std::string_view value) {  // BINUNICODE, length in little endian
  out += 'X';
  const auto size = static_cast<uint32_t>(value.size());
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(size >> shift & 255);
  out += value;
}

void putInteger(std::string& out, int64_t value) {  // LONG1 of eight bytes, in little endian
  out += '\x8a';
  out += '\x08';
  for (int shift = 0; shift < 64; shift += 8) {
    out += static_cast<char>(static_cast<uint64_t>(value) >> shift & 255);
  }
}

void putDouble(std::string& out, double value) {  // BINFLOAT, in big endian
  out += 'G';
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(bits >> shift & 255);
}

bool isInteger(const Json& number) {
  return number.print().find_first_of(".e") == std::string::npos;
}

void put(std::string& out, const Json& value) {
  switch (value.type()) {
    case Json::Type::Null:
      out += 'N';
      break;
    case Json::Type::Bool:
      out += value.asBool() ? '\x88' : '\x89';
      break;
    case Json::Type::Number:
      if (isInteger(value)) {
        putInteger(out, value.asInt());
      } else {
        putDouble(out, value.asDouble());
      }
      break;
    case Json::Type::String:
      putText(out, value.asString());
      break;
    case Json::Type::Array:
      out += "](";
      for (const Json& item : value.items()) put(out, item);
      out += 'e';
      break;
    case Json::Type::Object:
      out += "}(";
      for (const auto& [key, member] : value.members()) {
        putText(out, key);
        put(out, member);
      }
      out += 'u';
      break;
  }
}

}  // namespace

std::string pickled(const Json& value) {
  std::string out("\x80\x02", 2);
  put(out, value);
  return out + '.';
}

}  // namespace torch::comms
