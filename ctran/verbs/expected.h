#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

namespace ibverbx {

/// An error as a value: what a verb's errno was, and what could not be done.
struct Error {
  int errNum = 0;
  std::string errStr;  ///< a sentence with what to try, where we know it
};

/// "what: strerror(errNum)".
inline Error errorOf(int errNum, const std::string& what) {
  return {errNum, what + ": " + std::strerror(errNum)};
}

struct Unit {};

/// A value or an Error; asking for the one that is not there throws std::bad_variant_access.
template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool hasValue() const { return state_.index() == 0; }
  bool hasError() const { return state_.index() == 1; }
  explicit operator bool() const { return hasValue(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const Error& error() const { return std::get<1>(state_); }

  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

/// Done, or an Error.
using Maybe = Expected<Unit>;

}  // namespace ibverbx
