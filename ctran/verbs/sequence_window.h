#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace ibverbx {

/// What the immediate of a fragment says: bit 31 is set on the last fragment of a message of which
/// the receiver wants to know, bits 0 to 23 are the fragment's number in the order of posting.
struct FragmentMark {
  static constexpr uint32_t kNotify = 1u << 31;
  static constexpr uint32_t kSequenceMask = (1u << 24) - 1;

  static uint32_t pack(uint64_t sequence, bool notify) {
    return static_cast<uint32_t>(sequence & kSequenceMask) | (notify ? kNotify : 0);
  }
};

/// Puts fragments that have come over several queue pairs in the order in which they were posted.
class SequenceWindow {
 public:
  struct Fragment {
    uint32_t bytes = 0;
    uint16_t qp = 0;  ///< the queue pair over which it came
    bool here = false;
    bool notify = false;
  };

  /// At most `fragments` numbers are ever between the oldest that misses and the newest that came;
  /// `first` is the number of the first.
  explicit SequenceWindow(uint32_t fragments, uint64_t first = 0)
      : slots_(std::bit_ceil(fragments)),
        mask_(static_cast<uint32_t>(slots_.size()) - 1),
        next_(first) {}

  /// False if this number cannot come now: beyond the window, or for the second time. A peer that
  /// keeps to the protocol never does that.
  bool accept(uint32_t mark, uint32_t bytes, uint16_t qp) {
    if (mark & ~(FragmentMark::kNotify | FragmentMark::kSequenceMask)) return false;
    const uint32_t ahead = (mark - static_cast<uint32_t>(next_)) & FragmentMark::kSequenceMask;
    if (ahead > mask_) return false;
    Fragment& slot = slots_[(next_ + ahead) & mask_];
    if (slot.here) return false;
    slot = {bytes, qp, true, (mark & FragmentMark::kNotify) != 0};
    return true;
  }

  /// The next fragment in order; null if it has not come.
  const Fragment* front() const {
    const Fragment& slot = slots_[next_ & mask_];
    return slot.here ? &slot : nullptr;
  }
  void pop() { slots_[next_++ & mask_].here = false; }

 private:
  std::vector<Fragment> slots_;
  uint32_t mask_;
  uint64_t next_;
};

}  // namespace ibverbx
