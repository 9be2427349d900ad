#include "ctran/window/window_signals.h"

namespace ctran {
namespace {

/// Returns where each rank's part begins, and at the end the size of all parts, in bytes.
std::vector<size_t> layout(const WindowSignals::Words& words) {
  std::vector<size_t> offsets{0};
  for (const auto& count : words) {
    const size_t used = count ? (8 + words.size() + *count) * sizeof(uint64_t) : 0;
    offsets.push_back(offsets.back() + (used + 63) / 64 * 64);
  }
  return offsets;
}

}  // namespace

size_t WindowSignals::bytesFor(const Words& words) {
  return (layout(words).back() + 4095) / 4096 * 4096;
}

WindowSignals::WindowSignals(std::shared_ptr<SharedMapping> memory, const Words& words)
    : memory_(std::move(memory)), size_(words.size()), offsets_(layout(words)) {}

}  // namespace ctran
