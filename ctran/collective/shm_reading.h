#pragma once

#include <algorithm>
#include <cstddef>

#include "ctran/collective/shm_context.h"

namespace ctran {

/// Nothing goes through shared memory: every rank lends its data, in `addresses` places (`lend(i)`,
/// a span), does its own part (`own()`), and reads what it needs straight from the memory of
/// each other rank (`from(peer)`, a Reading). It stays until all have read. Of data that is read
/// once this costs one copy instead of two, and a system call per peer.
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

/// The same with what needs the addresses of all: `all()`, which returns a rank whose memory is no
/// longer there, or -1.
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

/// In pieces, each in a part for every rank: a rank makes its part from what others have lent
/// (`lend()` does so, or publishes without), in its output and its buffer in the ring (`make(k,
/// buffer)`, of up to `bytes`, which returns as `all` above), one piece ahead, and if it `takes`
/// gets the parts of all others from there (`take(k, peer, buffer)`).
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
