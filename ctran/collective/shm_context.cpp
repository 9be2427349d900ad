#include "ctran/collective/shm_context.h"

#include <string>

#include "ctran/base/error.h"
#include "ctran/collective/signature.h"

namespace ctran {

void ShmContext::begin(const Collective& collective) {
  ++sequence_;
  signature_ = extendSignature(signature_, collective);
  Arena::Control& own = arena.control(rank);
  record_ = own.collectives.begin(makeRecord(collective, sequence_, signature_));
  own.begun.store(sequence_, std::memory_order_release);
}

void ShmContext::throwMismatch(int peer) {
  // The first collective in which the two differ, as far back as both remember.
  OperationRing& ownRing = arena.control(rank).collectives;
  OperationRing& peerRing = arena.control(peer).collectives;
  std::string ownText = "something else", peerText = "something else";
  const uint64_t oldest =
      sequence_ > OperationRing::kCapacity ? sequence_ - OperationRing::kCapacity : 1;
  uint64_t at = sequence_;
  for (uint64_t n = oldest; n <= sequence_; ++n) {
    const auto own = ownRing.find(n);
    const auto other = peerRing.find(n);
    if (!own || !other || own->signature == other->signature) continue;
    at = n;
    ownText = describe(*own);
    peerText = describe(*other);
    if (ownText == peerText) peerText += " with other counts per rank, or by another plan";
    break;
  }
  throw Error(ErrorKind::Mismatch,
              "collective " + std::to_string(at - kCreation) + " differs: rank " +
                  std::to_string(rank) + " called " + ownText + ", rank " + std::to_string(peer) +
                  " called " + peerText,
              {rank, peer}, ownText,
              "all ranks must call the same collectives in the same order, with the same data "
              "type, size, reduction and root");
}

void ShmContext::checkSignatures() {
  for (int r = 0; r < size; ++r) {
    const auto record = arena.control(r).collectives.find(sequence_);
    if (record && record->signature != signature_) throwMismatch(r);
  }
}

}  // namespace ctran
