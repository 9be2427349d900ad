#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "mscclpp/errors.hpp"

namespace mscclpp::wire {

/// A message that is one plain struct, which begins with a number that says which.
template <class T>
std::vector<char> packed(const T& message) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<char> bytes(sizeof message);
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

template <class T>
T unpacked(const std::vector<char>& bytes, const char* what) {
  T message;
  const T expected{};
  if (bytes.size() != sizeof message) {
    throw Error(std::string("what was received is no ") + what, ErrorCode::InvalidUsage);
  }
  std::memcpy(&message, bytes.data(), sizeof message);
  if (message.magic != expected.magic) {
    throw Error(std::string("what was received is no ") + what, ErrorCode::InvalidUsage);
  }
  return message;
}

}  // namespace mscclpp::wire
