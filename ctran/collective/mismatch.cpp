#include "ctran/collective/mismatch.h"

#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/signature.h"

namespace ctran {

void throwMismatch(Board& board, int peer, uint64_t sequence) {
  const int rank = board.rank();
  // The first collective in which the two differ, as far back as both remember.
  OperationRing& ownRing = board.control(rank).collectives;
  OperationRing& peerRing = board.control(peer).collectives;
  std::string ownText = "something else", peerText = "something else";
  const uint64_t oldest =
      sequence > OperationRing::kCapacity ? sequence - OperationRing::kCapacity : 1;
  uint64_t at = sequence;
  bool isRegistration = false;
  for (uint64_t n = oldest; n <= sequence; ++n) {
    const auto own = ownRing.find(n);
    const auto other = peerRing.find(n);
    if (!own || !other || own->signature == other->signature) continue;
    at = n;
    ownText = describe(*own);
    peerText = describe(*other);
    isRegistration = startsFunctions(*own) != startsFunctions(*other);
    const auto before = ownRing.find(n - 1);
    if (ownText == peerText && before && before->sequence > kCreation && !peerRing.find(n - 1)) {
      // Across hosts a rank hears only of collectives in which the peer sends it something.
      peerText += "; but they parted before that, this rank's being " + describe(*before);
    } else if (ownText == peerText) {
      peerText +=
          " with other counts per rank, by another algorithm (see ctran::algorithm), or by another "
          "plan";
    }
    break;
  }
  throw Error(ErrorKind::Mismatch,
              "collective " + std::to_string(at - kCreation) + " differs: rank " +
                  std::to_string(rank) + " called " + ownText + ", rank " + std::to_string(peer) +
                  " called " + peerText,
              {rank, peer}, ownText,
              isRegistration
                  ? "all ranks must register the same algorithms before the same collective, and "
                    "remove them before the same one"
                  : "all ranks must call the same collectives in the same order, with the same "
                    "data type, size, reduction and root");
}

void checkSignatures(Board& board, uint64_t sequence, uint64_t signature) {
  for (const int r : board.known()) {
    const auto record = board.control(r).collectives.find(sequence);
    if (record && record->signature != signature) throwMismatch(board, r, sequence);
  }
}

}  // namespace ctran
