#pragma once

#include <algorithm>
#include <cstddef>

#include "ctran/collective/shm_context.h"

namespace ctran {

/// Exchanges data without copying it through shared memory. Every rank lends its data, at
/// `addresses` addresses (`lend(i)`, a span), does its own part (`own()`), and reads what it needs
/// from the memory of each other rank (`from(peer)`, a Reading). It returns when all ranks have
/// read. For data that is read once this costs one copy instead of two, and a system call per peer.
template <class Lend, class Own, class From>
Task exchangeByReading(ShmContext& shm, int addresses, Lend lend, Own own, From from) {
  shm.beginRounds(1, 64);  // nothing goes there, but it counts who has read
  co_await shm.slotFree();
  shm.lend(addresses, lend);
  own();
  for (int step = 1; step < shm.size; ++step) {
    const int peer = (shm.rank + step) % shm.size;
    co_await shm.arrived(peer);
    if (!shm.read(peer, from(peer))) co_await shm.neverFilledBy(peer);
  }
  shm.endRounds();
  co_await shm.allDrained(0);
  shm.throwIfFailed();
}

/// Does the same for a step that needs the addresses of all ranks at once: `all()` returns a rank
/// whose memory is no longer there, or -1.
template <class Lend, class All>
Task exchangeByReadingAll(ShmContext& shm, int addresses, Lend lend, All all) {
  shm.beginRounds(1, 64);
  co_await shm.slotFree();
  shm.lend(addresses, lend);
  co_await shm.allArrived();
  shm.checkAll();
  const int gone = all();
  if (gone >= 0) co_await shm.neverFilledBy(gone);
  shm.endRounds();
  co_await shm.allDrained(0);
  shm.throwIfFailed();
}

/// Exchanges data in pieces, each of which has a part for every rank. A rank makes its part from
/// what the others have lent, in its output and in its buffer in the ring (`make(k, buffer)`, of up
/// to `bytes`, which returns what `all` above returns), one piece ahead. If it `takes`, it gets the
/// parts of all others from their rings (`take(k, peer, buffer)`). `lend()` lends this rank's data,
/// or publishes its slot without lending.
template <class Lend, class Make, class Take>
Task exchangeMadeByReading(ShmContext& shm, uint64_t pieces, size_t bytes, bool takes, Lend lend,
                           Make make, Take take) {
  shm.beginRounds(pieces, bytes);
  co_await shm.slotFree();
  lend();
  co_await shm.allArrived();
  shm.checkAll();
  for (uint64_t k = 0, made = 0; k < pieces; ++k) {
    for (; made < std::min(k + 2, pieces); ++made) {
      co_await shm.roundFree(made);
      const int gone = make(made, shm.buffer(made));
      if (gone >= 0) co_await shm.neverFilledBy(gone);
      shm.fillTo(made);
    }
    if (!takes) co_await shm.allFilled(k);
    for (int step = 1; takes && step < shm.size; ++step) {
      const int peer = (shm.rank + step) % shm.size;
      co_await shm.filledBy(peer, k);
      take(k, peer, shm.bufferOf(peer, k));
    }
    shm.drainTo(k);
  }
  shm.endRounds();  // who has made its last part reads no more
  shm.throwIfFailed();
}

}  // namespace ctran
