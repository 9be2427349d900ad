#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ctran {

/// A number that somebody else sends: another rank, the store, a file. Sums and products of it do
/// not wrap around, and its value can be read only together with a bound.
class Checked {
 public:
  constexpr Checked(uint64_t value) : value_(value) {}

  friend constexpr Checked operator+(Checked a, Checked b) {
    Checked sum(0);
    sum.wraps_ = __builtin_add_overflow(a.value_, b.value_, &sum.value_) || a.wraps_ || b.wraps_;
    return sum;
  }
  friend constexpr Checked operator*(Checked a, Checked b) {
    Checked product(0);
    product.wraps_ =
        __builtin_mul_overflow(a.value_, b.value_, &product.value_) || a.wraps_ || b.wraps_;
    return product;
  }

  constexpr bool isAtMost(uint64_t most) const { return !wraps_ && value_ <= most; }

  /// Returns the number. If it is more than `most`, throws Error(Mismatch) that names the rank that
  /// sends it: "rank 3 tells 7 `what`, where 5 is the most".
  uint64_t atMost(uint64_t most, int rank, std::string_view what,
                  const std::string& operation = {}) const {
    if (!isAtMost(most)) reject(most, rank, what, operation);
    return value_;
  }

 private:
  [[noreturn]] void reject(uint64_t most, int rank, std::string_view what,
                           const std::string& operation) const;

  uint64_t value_;
  bool wraps_ = false;
};

/// Returns whether [offset, offset + bytes) lies inside memory of that size.
constexpr bool isInside(Checked offset, Checked bytes, uint64_t size) {
  return (offset + bytes).isAtMost(size);
}

/// Makes text that somebody else sends safe for messages and terminals: valid UTF-8 without control
/// characters other than line breaks. Each other byte becomes a question mark.
std::string printable(std::string_view text);

}  // namespace ctran
