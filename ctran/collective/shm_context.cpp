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

}  // namespace ctran
