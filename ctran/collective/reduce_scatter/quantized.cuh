#pragma once

#include "ctran/gpu/device/element.cuh"
#include "ctran/gpu/device/flow.cuh"

// Reduce-scatter of fp32 that sends bf16: half the bytes. A contribution is rounded up or down at
// random, with chances that make its expected value the number itself, so that errors of many ranks
// and steps cancel instead of adding up. What a rank contributes to its own part is not rounded;
// sums are of fp32, in rank order. Over flows as reduce/pipeline.cuh, with steps of the same kind:
//
//   step s: push the contributions to chunk s of every part; reduce chunk s - 1 of our own
//
// (n - 1) / n * bytes / 2 out and in per rank.

namespace ctran::device {

struct QuantizedArguments {
  Team team;
  const float* parts[kMaxRanks];  ///< what this rank contributes to part r, of `count` elements
  float* output;
  u64 count;
  u64 seed;
  const u64* seedAt;  ///< if not null, the seed is there
  u32 chunkBytes;     ///< on the wire
  u32 average;        ///< not 0: divide the sum by the number of ranks
  u64 chunks;
  u32 flows;  ///< as many on all ranks, whatever their launches look like
};

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; SC
/// 2011): 128 random bits that depend on nothing but the counter and the key.
CTRAN_INLINE Word16 philox(Word16 counter, u64 key) {
  u32 low = static_cast<u32>(key), high = static_cast<u32>(key >> 32);
  CTRAN_UNROLL
  for (u32 round = 0; round < 10; ++round) {
    const u64 a = static_cast<u64>(0xd2511f53u) * counter.w[0];
    const u64 b = static_cast<u64>(0xcd9e8d57u) * counter.w[2];
    counter = {{static_cast<u32>(b >> 32) ^ counter.w[1] ^ low, static_cast<u32>(b),
                static_cast<u32>(a >> 32) ^ counter.w[3] ^ high, static_cast<u32>(a)}};
    low += 0x9e3779b9u;
    high += 0xbb67ae85u;
  }
  return counter;
}

/// The nearest bf16 above or below, the one that is nearer more often: `random` is one of 65536.
/// Infinities and NaNs stay what they are, and what is finite stays finite.
CTRAN_INLINE u32 roundAtRandom(float x, u32 random) {
  const u32 bits = bitCast<u32>(x);
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return bits >> 16 | (magnitude > 0x7f800000u ? 0x40u : 0u);
  const u32 rounded = bits + random;
  return (rounded & 0x7fffffffu) >= 0x7f800000u ? bits >> 16 : rounded >> 16;
}

/// Eight elements, word `word` of what `from` sends `to`.
CTRAN_INLINE Word16 quantized(const Bytes<const char>& chunk, u64 i, u64 word, u32 from, u32 to,
                              u64 seed) {
  const Word16 random =
      philox({{static_cast<u32>(word), static_cast<u32>(word >> 32), from, to}}, seed);
  Word16 result;
  CTRAN_UNROLL
  for (u32 half = 0; half < 2; ++half) {
    const Word16 four = loadUser(chunk, 2 * i + half);
    CTRAN_UNROLL
    for (u32 k = 0; k < 2; ++k) {
      const u32 bits = random.w[2 * half + k];
      const u32 low = roundAtRandom(bitCast<float>(four.w[2 * k]), bits & 0xffff);
      const u32 high = roundAtRandom(bitCast<float>(four.w[2 * k + 1]), bits >> 16);
      result.w[2 * half + k] = low | high << 16;
    }
  }
  return result;
}

template <u32 kRanks>
CTRAN_INLINE void reduceQuantized(const QuantizedArguments& a, const Block& block) {
  const Team& team = a.team;
  const u64 seed = a.seedAt ? *a.seedAt : a.seed;
  if (!enter(team, block)) return;
  const u32 rank = team.rank;
  const u32 flow = block.index;
  const u32 words = a.chunkBytes / 16;
  const u64 chunks = flow < a.flows ? (a.chunks - flow + a.flows - 1) / a.flows : 0;
  if (chunks == 0) return;
  // Chunks are of fp32 here, twice as large as on the wire.
  const auto chunkAt = [&](auto* part, u64 chunk) {
    const u64 at = (chunk * a.flows + flow) * 2 * a.chunkBytes;
    const u64 left = a.count * sizeof(float) - at;
    return bytesOf(part + at, left < 2 * a.chunkBytes ? left : 2 * a.chunkBytes);
  };
  const auto input = [&](u32 r, u64 chunk) {
    return chunkAt(reinterpret_cast<const char*>(a.parts[r]), chunk);
  };
  const auto awaitRoom = [&](u64 s) {
    for (u32 peer = block.thread; s < chunks && peer < kRanks; peer += block.threads) {
      if (peer == rank) continue;
      const u32 number = team.state->sent[peer][flow] + static_cast<u32>(s);
      awaitFlag(team, block, creditOf(team, rank, peer, flow), number + 1 - kDepth, peer);
    }
    return goesOn(block);
  };
  if (!awaitRoom(0)) return;
  for (u64 s = 0; s <= chunks; ++s) {
    const u32 now = static_cast<u32>(s);
    if (s < chunks) {
      const u64 first = (s * a.flows + flow) * words;
      CTRAN_UNROLL
      for (u32 step = 1; step < kRanks; ++step) {
        const u32 peer = (rank + step) % kRanks;
        const auto chunk = input(peer, s);
        const u32 number = team.state->sent[peer][flow] + now;
        Word16* slot = reinterpret_cast<Word16*>(stepOf(team, rank, peer, flow, number));
        forWords(
            block, 0, static_cast<u32>((chunk.count + 31) / 32),
            [&](u32 i) { return quantized(chunk, i, first + i, rank, peer, seed); },
            [&](u32 i, const Word16& v) { slot[i] = v; });
      }
    }
    if (s > 0) {
      for (u32 peer = block.thread; peer < kRanks; peer += block.threads) {
        if (peer == rank) continue;
        const u32 number = team.state->received[peer][flow] + now - 1;
        awaitFlag(team, block, readyOf(team, peer, rank, flow), number + 1, peer);
      }
      if (!goesOn(block)) return;
      const auto own = input(rank, s - 1);
      const auto out = chunkAt(reinterpret_cast<char*>(a.output), s - 1);
      for (u32 i = block.thread; i < static_cast<u32>((own.count + 31) / 32); i += block.threads) {
        Word16 arrived[kRanks];
        CTRAN_UNROLL
        for (u32 r = 0; r < kRanks; ++r) {
          // Our own slot holds nothing, but can be read: no branch between the loads.
          const char* slot = stepOf(team, r, rank, flow, team.state->received[r][flow] + now - 1);
          arrived[r] = loadWords(reinterpret_cast<const Word16*>(slot) + i);
        }
        CTRAN_UNROLL
        for (u32 half = 0; half < 2; ++half) {
          const Word16 ours = loadUser(own, 2 * i + half);
          Word16 result;
          CTRAN_UNROLL
          for (u32 k = 0; k < 4; ++k) {
            float sum = 0;
            CTRAN_UNROLL
            for (u32 r = 0; r < kRanks; ++r) {
              const u32 two = arrived[r].w[2 * half + k / 2];
              const float theirs = bitCast<float>(k % 2 == 0 ? two << 16 : two & 0xffff0000u);
              const float x = r == rank ? bitCast<float>(ours.w[k]) : theirs;
              sum = r == 0 ? x : sum + x;
            }
            result.w[k] = bitCast<u32>(a.average != 0 ? sum / kRanks : sum);
          }
          storeUser(out, 2 * i + half, result);
        }
      }
    }
    if (!awaitRoom(s + 1)) return;  // with a barrier: all have read, and written
    const u32 publisher = publisherOf(block);
    for (u32 peer = block.thread - publisher; peer < kRanks; peer += block.threads) {
      if (peer == rank) continue;
      fenceSystem();
      if (s < chunks) {
        storeFenced(readyOf(team, rank, peer, flow), team.state->sent[peer][flow] + now + 1);
      }
      if (s > 0) {
        storeFenced(creditOf(team, peer, rank, flow), team.state->received[peer][flow] + now);
      }
    }
  }
  block.sync();
  for (u32 peer = block.thread; peer < kRanks; peer += block.threads) {
    if (peer == rank) continue;
    team.state->sent[peer][flow] += static_cast<u32>(chunks);
    team.state->received[peer][flow] += static_cast<u32>(chunks);
  }
}

}  // namespace ctran::device

#ifdef CTRAN_RANKS
CTRAN_FLOWS_KERNEL(ctranReduceQuantized, QuantizedArguments, 512,
                   (reduceQuantized<CTRAN_RANKS>(arguments, block)))
#endif
