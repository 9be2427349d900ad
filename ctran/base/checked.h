#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ctran {

/// A number that somebody else says: another rank, the store, a file. Sums and products of it do
/// not wrap around, and what it is can be had only within a bound.
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

  /// The number. If it is more than `most`: throws Error(Mismatch) that names the rank that says
  /// so, "rank 3 tells 7 `what`, where 5 is the most".
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

/// Whether [offset, offset + bytes) lies inside of memory of that size.
constexpr bool isInside(Checked offset, Checked bytes, uint64_t size) {
  return (offset + bytes).isAtMost(size);
}

/// Text that somebody else says, for messages and terminals: valid UTF-8 without control characters
/// other than line breaks; a question mark for each byte that is none of it.
std::string printable(std::string_view text);

}  // namespace ctran
