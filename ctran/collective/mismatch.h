#pragma once

#include <cstdint>

#include "ctran/transport/board.h"

namespace ctran {

/// Throws Error(Mismatch) for this rank and a peer whose collectives up to `sequence` differ. It
/// names the first in which they differ, as far back as both are remembered.
[[noreturn]] void throwMismatch(Board& board, int peer, uint64_t sequence);

/// Throws that error if a rank is known to have another signature at `sequence`.
void checkSignatures(Board& board, uint64_t sequence, uint64_t signature);

}  // namespace ctran
