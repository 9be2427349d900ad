#pragma once

#include <concepts>

#include "ctran/collective/shm_context.h"

namespace ctran {

/// Whose data a rank takes in a collective: a rank's, or one of these.
inline constexpr int kFromAll = -1;
inline constexpr int kFromNobody = -2;

/// One step through the slots: every rank publishes (`write(data)`), then takes from `source`:
/// `take(peer, data)` per peer, itself included, or once `take(dataOfAllRanks)`.
/// Cost: one cache-line transfer per source for small data; a source waits for nobody unless it
/// runs more than Arena::kSlots collectives ahead.
template <class Write, class Take>
Task exchangeSlots(ShmContext& shm, int source, Write write, Take take) {
  co_await shm.slotFree();
  write(shm.slotData());
  shm.publishSlot();
  if (source == kFromAll) {
    co_await shm.allArrived();
    const std::byte* data[Arena::kMaxRanks];
    shm.slotsOfAll(data);
    if constexpr (std::invocable<Take, const std::byte* const*>) {
      take(data);
    } else {
      for (int r = 0; r < shm.size; ++r) take(r, data[r]);
    }
  } else if (source != kFromNobody) {
    if constexpr (std::invocable<Take, int, const std::byte*>) {
      co_await shm.arrived(source);
      take(source, shm.slotOf(source));
    }
  }
}

/// Several rounds through the large buffers: in round k a rank that `writes` puts its part into its
/// buffer (`write(k, buffer)`), one round ahead of its reading, and takes from `source`:
/// `take(k, peer, buffer)` per peer but itself, nearest first, or once `take(k,
/// buffersOfAllRanks)`. `rounds` is the same on all ranks.
template <class Write, class Take>
Task exchangeRounds(ShmContext& shm, uint64_t rounds, bool writes, int source, Write write,
                    Take take) {
  const uint64_t first = shm.firstRound();
  const bool reads = source != kFromNobody;
  co_await shm.slotFree();
  shm.publishSlot();
  if (!writes) shm.fill(first + rounds);
  if (!reads) shm.drain(first + rounds);

  for (uint64_t k = 0, written = 0; k < rounds; ++k) {
    const uint64_t ahead = reads ? std::min(k + 2, rounds) : k + 1;
    for (; writes && written < ahead; ++written) {
      co_await shm.roundFree(first + written);
      write(written, shm.buffer(first + written));
      shm.fill(first + written + 1);
    }
    if (!reads) continue;
    if (source == kFromAll) {
      if (k == 0) {
        co_await shm.allArrived();
        for (int r = 0; r < shm.size; ++r) shm.slotOf(r);
      }
      if constexpr (std::invocable<Take, uint64_t, const std::byte* const*>) {
        co_await shm.allFilled(first + k);
        const std::byte* data[Arena::kMaxRanks];
        for (int r = 0; r < shm.size; ++r) data[r] = shm.bufferOf(r, first + k);
        take(k, data);
      } else {
        for (int step = 1; step < shm.size; ++step) {
          const int peer = (shm.rank + step) % shm.size;
          co_await shm.filledBy(peer, first + k);
          take(k, peer, shm.bufferOf(peer, first + k));
        }
      }
    } else {
      if constexpr (std::invocable<Take, uint64_t, int, const std::byte*>) {
        if (k == 0) {
          co_await shm.arrived(source);
          shm.slotOf(source);
        }
        co_await shm.filledBy(source, first + k);
        take(k, source, shm.bufferOf(source, first + k));
      }
    }
    shm.drain(first + k + 1);
  }
  shm.endRounds(rounds);
}

/// For the parts of an operation that a rank has no use for.
inline constexpr auto writeNothing = [](auto&&...) {};

}  // namespace ctran
