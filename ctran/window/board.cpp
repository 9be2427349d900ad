#include "ctran/window/board.h"

namespace ctran {
namespace {

/// Where each rank's part begins, and at the end how much that is, in bytes.
std::vector<size_t> layout(const std::vector<size_t>& words) {
  std::vector<size_t> offsets{0};
  for (const size_t count : words) {
    const size_t used = (8 + words.size() + count) * sizeof(uint64_t);
    offsets.push_back(offsets.back() + (used + 63) / 64 * 64);
  }
  return offsets;
}

}  // namespace

size_t Board::bytesFor(const std::vector<size_t>& words) {
  return (layout(words).back() + 4095) / 4096 * 4096;
}

Board::Board(std::shared_ptr<SharedMapping> memory, const std::vector<size_t>& words)
    : memory_(std::move(memory)), size_(words.size()), offsets_(layout(words)) {}

}  // namespace ctran
