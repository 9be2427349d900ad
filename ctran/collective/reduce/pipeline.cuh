#pragma once

#include "ctran/collective/reduce/packets.cuh"
#include "ctran/gpu/device/lane.cuh"
#include "ctran/gpu/device/symmetric.cuh"

// All-reduce, reduce-scatter and reduce of much data over lanes. The data is in parts, one for each
// rank: it gets everybody's contribution to its part, reduces it in rank order, and pushes the
// result to whoever wants it. All-reduce: 2 (n - 1) / n * bytes out and in per rank.
//
// A block serves one lane to and from every other rank, in steps. Step s carries, in its first half
// (or all of it, if nobody gets results), contributions to chunk s of the receiver's part, and in
// its second the results of chunk s - d of the sender's (d, the lookahead, is how far the wire is
// ahead of the reduction):
//
//   step s:  push the contributions to chunk s of every part
//            wait for everybody's step s - d: it has the contributions to chunk s - d of our part,
//            which we reduce and push, and the results of chunk s - 2d of the others' parts, which
//            we copy to the output
//
// so a part of C chunks takes C + 2d rounds, C + d without results. One fence and one flag per step
// and peer.
//
// Step 0 says too where the sender's input and output are, if all others have them mapped. If that
// is so for all ranks, the parts end after d chunks of each lane: the rest is reduced straight from
// everybody's input into everybody's output, in the round in which a rank has learnt it. No flag is
// added to that: with step 0 the others are here and their inputs complete; the steps, or credits,
// that follow tell them that we have read and written what is theirs. Ranks cannot disagree, as
// each sees all offers.

namespace ctran::device {

/// The bytes of a chunk: chunk c of lane l is number c * lanes + l of its part.
template <class T>
CTRAN_INLINE Bytes<T> chunkOf(T* part, u64 partBytes, u64 number, u32 chunkBytes) {
  const u64 at = number * chunkBytes;
  if (part == nullptr || at >= partBytes) return {nullptr, 0, true};
  const u64 left = partBytes - at;
  return bytesOf<T>(part + at, left < chunkBytes ? left : chunkBytes);
}

/// Chunk `chunk` of this lane, of every other rank's part.
template <u32 kRanks, class T>
struct PeerChunks {
  Bytes<T> of[kRanks];  ///< [step]

  template <class Part>
  CTRAN_INLINE PeerChunks(u32 rank, const Part& part) {
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) of[step] = part((rank + step) % kRanks);
  }
};

/// Waits for a flag of every other rank, and for the block. False: failed, return.
template <u32 kRanks, class Flag>
CTRAN_INLINE bool awaitPeers(const Team& team, const Block& block, const Flag& flag) {
  for (u32 peer = block.thread; peer < kRanks; peer += block.threads) {
    if (peer != team.rank) flag(peer);
  }
  block.sync();
  return !stopped(block);
}

/// If all others have offered their memory with step 0 of this block's lane: reduces our part but
/// for its first bytes, with all blocks, from everybody's input to the outputs of those who want
/// it. All is aligned to sixteen bytes; an element is read and written by one thread. Out of line,
/// so that it costs the others no registers. False: somebody has not offered.
template <class Element, class Op, u32 kRanks>
CTRAN_NOINLINE bool reduceDirectly(const ReduceArguments& a, const Block block) {
  const Team& team = a.team;
  Word16 offers[kRanks];
  bool all = true;
  CTRAN_UNROLL
  for (u32 r = 0; r < kRanks; ++r) {
    const char* slot =
        stepOf(team, r, team.rank, block.index, team.state->received[r][block.index]);
    offers[r] = loadWords(reinterpret_cast<const Word16*>(slot) + a.chunkBytes / 16);
    all = all && (r == team.rank || isOffer(offers[r]));
  }
  if (!all) return false;
  const u64 bytes = a.counts[team.rank] * sizeof(Element);
  const u64 first = static_cast<u64>(a.lookahead) * block.count * a.chunkBytes;
  if (first >= bytes) return true;
  const char* from[kRanks];
  char* to[kRanks];
  CTRAN_UNROLL
  for (u32 r = 0; r < kRanks; ++r) {
    const bool wants = (a.shareWith >> r & 1) != 0;
    if (r == team.rank) {
      from[r] = static_cast<const char*>(a.parts[r]);
      to[r] = static_cast<char*>(a.outputs[r]);
    } else {
      from[r] = offeredInput(team, r, offers[r]);
      to[r] = wants ? offeredOutput(team, r, offers[r]) : nullptr;
    }
  }
  constexpr u32 kAtOnce = kRanks <= 2 ? 4 : kRanks <= 4 ? 2 : 1;
  const u64 words = bytes / 16;
  const u64 stride = block.globalThreads();
  for (u64 i = first / 16 + block.globalThread(); i < words; i += kAtOnce * stride) {
    Word16 parts[kAtOnce][kRanks];
    CTRAN_UNROLL
    for (u32 k = 0; k < kAtOnce; ++k) {
      const u64 at = i + k * stride < words ? i + k * stride : i;
      CTRAN_UNROLL
      for (u32 r = 0; r < kRanks; ++r) {
        parts[k][r] = loadWords(reinterpret_cast<const Word16*>(from[r]) + at);
      }
    }
    CTRAN_UNROLL
    for (u32 k = 0; k < kAtOnce; ++k) {
      const u64 at = i + k * stride;
      if (at >= words) break;
      const Word16 result = reduce<Element, Op, kRanks>(parts[k]);
      CTRAN_UNROLL
      for (u32 r = 0; r < kRanks; ++r) {
        if (to[r] != nullptr) reinterpret_cast<Word16*>(to[r])[at] = result;
      }
    }
  }
  const u64 end = words * 16;
  if (end == bytes || block.globalThread() != 0) return true;
  Word16 parts[kRanks];
  CTRAN_UNROLL
  for (u32 r = 0; r < kRanks; ++r) parts[r] = loadTail(from[r] + end, bytes - end);
  const Word16 result = reduce<Element, Op, kRanks>(parts);
  CTRAN_UNROLL
  for (u32 r = 0; r < kRanks; ++r) {
    if (to[r] != nullptr) storeTail(to[r] + end, bytes - end, result);
  }
  return true;
}

template <class Element, class Op, u32 kRanks>
CTRAN_INLINE void reducePipeline(const ReduceArguments& a, const Block& block) {
  const Team& team = a.team;
  const double factor = factorOf(a);
  if (!enter(team, block)) return;
  const u32 rank = team.rank;
  const u32 lane = block.index;
  const u32 d = a.lookahead;
  const bool shares = a.shareWith != 0;
  const u32 words = a.chunkBytes / 16;
  u32 chunks =
      static_cast<u32>(lane < a.chunks ? (a.chunks - lane + block.count - 1) / block.count : 0);
  u32 steps = chunks == 0 ? 0 : chunks + (shares ? d : 0);  // that we send
  const bool hasRest =
      kRanks > 1 && a.chunks > u64{d} * block.count;  // beyond d chunks of each lane
  const auto offers = [&] { return hasRest && isOffer(a.offers[rank == 0 ? 1 % kRanks : 0]); };
  const auto chunkAt = [&](auto* part, u32 r, u64 chunk) {
    return chunkOf(part, a.counts[r] * sizeof(Element), chunk * block.count + lane, a.chunkBytes);
  };
  const auto input = [&](u32 r, u64 chunk) {
    return chunkAt(static_cast<const char*>(a.parts[r]), r, chunk);
  };
  const auto output = [&](u32 r, u64 chunk) {
    return chunkAt(static_cast<char*>(a.outputs[r]), r, chunk);
  };
  // The numbers of our first step to, and the first from, every other rank.
  u32 sent[kRanks], received[kRanks];
  CTRAN_UNROLL
  for (u32 r = 0; r < kRanks; ++r) {
    sent[r] = team.state->sent[(rank + r) % kRanks][lane];  // [step]
    received[r] = team.state->received[r][lane];            // [rank]
  }
  // Whether there is room for a step, which the end of the step before asks. Peers free the room of
  // step s - kDepth in their round s - kDepth + d, for which they need nothing that we have yet to
  // publish, as d <= kDepth - 2.
  const auto awaitRoom = [&](u32 s) {
    return awaitPeers<kRanks>(team, block, [&](u32 peer) {
      if (s >= steps) return;
      const u32 number = team.state->sent[peer][lane] + s;
      awaitFlag(team, block, creditOf(team, rank, peer, lane), number + 1 - kDepth, peer);
    });
  };
  // Whether everybody's step s - d is here.
  const auto awaitSteps = [&](u32 s) {
    return awaitPeers<kRanks>(team, block, [&](u32 peer) {
      const u32 number = team.state->received[peer][lane] + s - d;
      awaitFlag(team, block, readyOf(team, peer, rank, lane), number + 1, peer);
    });
  };
  if (!awaitRoom(0)) return;
  for (u32 peer = block.thread; hasRest && peer < kRanks; peer += block.threads) {
    if (peer == rank) continue;
    char* slot = stepOf(team, rank, peer, lane, team.state->sent[peer][lane]);
    reinterpret_cast<Word16*>(slot)[words] = a.offers[peer];
  }
  for (u32 s = 0; s < (chunks == 0 ? 0 : steps + d); ++s) {
    const u32 arrived = s - d;
    const auto slotOfStep = [&](u32 step) {
      return reinterpret_cast<Word16*>(
          stepOf(team, rank, (rank + step) % kRanks, lane, sent[step] + s));
    };
    if (s == d && offers()) {  // before anything else is sent
      if (!awaitSteps(s)) return;
      if (reduceDirectly<Element, Op, kRanks>(a, block)) {
        chunks = d;
        steps = d + (shares ? d : 0);
      }
    }
    if (s < chunks) {
      const PeerChunks<kRanks, const char> in(rank, [&](u32 r) { return input(r, s); });
      forPeers<kRanks>(
          block, words,
          [&](u32 step, u32 i) { return scaled<Element, Op>(loadUser(in.of[step], i), factor); },
          [&](u32 step, u32 i, const Word16& v) {
            if (u64{i} * 16 < in.of[step].count) slotOfStep(step)[i] = v;
          });
    }
    if (s >= d) {
      if (!awaitSteps(s)) return;
      if (s - d < chunks) {
        const auto own = input(rank, s - d);
        const auto out = output(rank, s - d);
        constexpr u32 kAtOnce = kRanks <= 4 ? 2 : 1;
        const u32 mine = static_cast<u32>((own.count + 15) / 16);
        for (u32 i = block.thread; i < mine; i += kAtOnce * block.threads) {
          Word16 contributions[kAtOnce][kRanks];
          Word16 ours[kAtOnce];
          CTRAN_UNROLL
          for (u32 k = 0; k < kAtOnce; ++k) {
            const u32 at = i + k * block.threads < mine ? i + k * block.threads : i;
            CTRAN_UNROLL
            for (u32 r = 0; r < kRanks; ++r) {
              // Our own slot holds nothing, but can be read: no branch between the loads.
              const char* slot = stepOf(team, r, rank, lane, received[r] + arrived);
              contributions[k][r] = loadWords(reinterpret_cast<const Word16*>(slot) + at);
            }
            ours[k] = loadUser(own, at);
          }
          CTRAN_UNROLL
          for (u32 k = 0; k < kAtOnce; ++k) {
            const u32 at = i + k * block.threads;
            if (at >= mine) break;
            place(scaled<Element, Op>(ours[k], factor), rank, contributions[k]);
            const Word16 result = reduce<Element, Op, kRanks>(contributions[k]);
            CTRAN_UNROLL
            for (u32 step = 1; step < kRanks; ++step) {
              if (!(a.shareWith >> (rank + step) % kRanks & 1)) continue;
              slotOfStep(step)[words + at] = result;
            }
            if (out.data != nullptr) storeUser(out, at, result);
          }
        }
      }
      if (s >= 2 * d && (a.shareWith >> rank & 1)) {
        const PeerChunks<kRanks, char> out(rank, [&](u32 r) { return output(r, s - 2 * d); });
        forPeers<kRanks>(
            block, words,
            [&](u32 step, u32 i) {
              const u32 peer = (rank + step) % kRanks;
              const u32 number = team.state->received[peer][lane] + arrived;
              const auto* slot =
                  reinterpret_cast<const Word16*>(stepOf(team, peer, rank, lane, number));
              return loadWords(slot + words + i);
            },
            [&](u32 step, u32 i, const Word16& v) { storeUser(out.of[step], i, v); });
      }
    }
    if (!awaitRoom(s + 1)) return;
    const u32 publisher = publisherOf(block);
    for (u32 peer = block.thread - publisher; peer < kRanks; peer += block.threads) {
      if (peer == rank) continue;
      fenceSystem();
      if (s < steps) {
        storeFenced(readyOf(team, rank, peer, lane), team.state->sent[peer][lane] + s + 1);
      }
      if (s >= d) {
        storeFenced(creditOf(team, peer, rank, lane),
                    team.state->received[peer][lane] + arrived + 1);
      }
    }
  }
  // Without results no step tells that the others have read our input.
  if (!shares && steps == d && offers() && !awaitPeers<kRanks>(team, block, [&](u32 peer) {
        const u32 number = team.state->sent[peer][lane] + steps;
        awaitFlag(team, block, creditOf(team, rank, peer, lane), number, peer);
      })) {
    return;
  }
  block.sync();
  for (u32 peer = block.thread; peer < kRanks; peer += block.threads) {
    if (peer == rank) continue;
    team.state->sent[peer][lane] += steps;
    team.state->received[peer][lane] += steps;
  }
}

}  // namespace ctran::device

#ifdef CTRAN_ELEMENT
CTRAN_KERNEL(ctranReducePipeline, ReduceArguments, 512,
             (reducePipeline<CTRAN_ELEMENT, CTRAN_OP, CTRAN_RANKS>(arguments, block)))
#endif
