#include "ctran/collective/shm_context.h"

#include "ctran/collective/signature.h"

namespace ctran {

void ShmContext::begin(const Collective& collective) {
  ++sequence_;
  signature_ = extendSignature(signature_, collective);
  Arena::Control& own = arena.control(rank);
  record_ = own.collectives.begin(makeRecord(collective, sequence_, signature_));
  own.begun.store(sequence_, std::memory_order_release);
}

void ShmContext::beginStep(Board& board, const OperationRecord& record) {
  ++sequence_;
  signature_ = record.signature;
  wholeBoard_ = &board;
  wholeSequence_ = record.sequence;
  arena.control(rank).begun.store(sequence_, std::memory_order_release);
}

void ShmContext::throwOther(int peer) {
  if (wholeBoard_ != nullptr) throwMismatch(*wholeBoard_, arena.nameOf(peer), wholeSequence_);
  throwMismatch(arena, peer, sequence_);
}

}  // namespace ctran
