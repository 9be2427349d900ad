#pragma once

#include <concepts>
#include <cstring>

#include "ctran/collective/shm_context.h"

namespace ctran {

/// The source of the data that a rank takes in a collective: a rank, or one of these.
inline constexpr int kFromAll = -1;
inline constexpr int kFromNobody = -2;

/// Runs one step. Every rank with `writes` publishes up to `bytes` (`write(data)`), the same number
/// on all ranks, in its slot or at once in the ring. Then a rank takes from `source`: `take(peer,
/// data)` per peer, itself included, or once `take(dataOfAllRanks)`.
/// Cost per source: one cache-line transfer and what the data takes. A source waits for no other
/// rank unless it runs more than Arena::kSlots collectives, or a ring, ahead.
template <class Write, class Take>
Task exchangeStep(ShmContext& shm, size_t bytes, bool writes, int source, Write write, Take take) {
  const bool inSlot = bytes <= Arena::kSlotDataBytes;
  if (!inSlot) shm.beginRounds(1, bytes);
  if (writes) {
    co_await shm.slotFree();
    if (!inSlot) co_await shm.roundFree(0);
    write(inSlot ? shm.slotData() : shm.buffer(0));
    shm.publishSlot();
    shm.expectAnother(bytes);
  } else if (inSlot) {
    shm.tellBegun();
  }
  if (source == kFromAll) {
    co_await shm.allArrived();
    shm.checkAll();
    const std::byte* data[Arena::kMaxRanks];
    for (int r = 0; r < shm.size; ++r) data[r] = inSlot ? shm.slotOf(r) : shm.bufferOf(r, 0);
    if constexpr (std::invocable<Take, const std::byte* const*>) {
      take(data);
    } else {
      for (int step = 0; step < shm.size; ++step) {
        const int peer = (shm.rank + step) % shm.size;
        take(peer, data[peer]);
      }
    }
  } else if (source != kFromNobody) {
    if constexpr (std::invocable<Take, int, const std::byte*>) {
      co_await shm.arrived(source);
      const std::byte* slot = shm.slotOf(source);
      take(source, inSlot ? slot : shm.bufferOf(source, 0));
    }
  }
  if (!inSlot) shm.endRounds();
}

/// Runs several rounds through the ring. In round k a rank that `writes` puts its part, of up to
/// `bytes`, into its buffer (`write(k, buffer)`), one round ahead of its reading. It takes from
/// `source`: `take(k, peer, buffer)` per peer but itself, nearest first, or once `take(k,
/// buffersOfAllRanks)`. `rounds` and `bytes` are the same on all ranks.
template <class Write, class Take>
Task exchangeRounds(ShmContext& shm, uint64_t rounds, size_t bytes, bool writes, int source,
                    Write write, Take take) {
  shm.beginRounds(rounds, bytes);
  const bool reads = source != kFromNobody;
  co_await shm.slotFree();
  shm.publishSlot();
  if (!writes) shm.fillAll();
  if (!reads) shm.endRounds();

  for (uint64_t k = 0, written = 0; k < rounds; ++k) {
    const uint64_t ahead = reads ? std::min(k + 2, rounds) : k + 1;
    for (; writes && written < ahead; ++written) {
      co_await shm.roundFree(written);
      write(written, shm.buffer(written));
      shm.fillTo(written);
    }
    if (!reads) continue;
    if (source == kFromAll) {
      if (k == 0) {
        co_await shm.allArrived();
        shm.checkAll();
      }
      if constexpr (std::invocable<Take, uint64_t, const std::byte* const*>) {
        co_await shm.allFilled(k);
        const std::byte* data[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) data[r] = shm.bufferOf(r, k);
        take(k, data);
      } else {
        for (int step = 1; step < shm.size; ++step) {
          const int peer = (shm.rank + step) % shm.size;
          co_await shm.filledBy(peer, k);
          take(k, peer, shm.bufferOf(peer, k));
        }
      }
    } else {
      if constexpr (std::invocable<Take, uint64_t, int, const std::byte*>) {
        if (k == 0) {
          co_await shm.arrived(source);
          shm.slotOf(source);
        }
        co_await shm.filledBy(source, k);
        take(k, source, shm.bufferOf(source, k));
      }
    }
    shm.drainTo(k);
  }
  shm.endRounds();
}

/// For ranks that publish nothing in an exchange.
inline constexpr auto writeNothing = [](auto&&...) {};

}  // namespace ctran
