#pragma once

#include "ctran/collective/reduce/arguments.cuh"
#include "ctran/gpu/device/flow.cuh"
#include "ctran/gpu/device/receive.cuh"
#include "ctran/gpu/device/reduce.cuh"

// All-reduce, reduce-scatter and reduce of much data over flows. The data is in parts, one for each
// rank: it gets everybody's contribution to its part, reduces it in rank order, and pushes the
// result to whoever wants it. All-reduce: 2 (n - 1) / n * bytes out and in per rank.
//
// A block serves one flow to and from every other rank, in steps. Step s carries, in its first half
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

namespace ctran::device {

/// The bytes of a chunk: chunk c of flow l is number c * flows + l of its part.
template <class T>
CTRAN_INLINE Bytes<T> chunkOf(T* part, u64 partBytes, u64 number, u32 chunkBytes) {
  const u64 at = number * chunkBytes;
  if (part == nullptr || at >= partBytes) return {nullptr, 0, true};
  const u64 left = partBytes - at;
  return bytesOf<T>(part + at, left < chunkBytes ? left : chunkBytes);
}

/// Chunk `chunk` of this flow, of every other rank's part.
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
  return goesOn(block);
}

template <class Element, class Op, u32 kRanks>
CTRAN_INLINE void reducePipeline(const ReduceArguments& a, const Block& block) {
  const Team& team = a.team;
  const double factor = factorOf(a);
  if (!enter(team, block)) return;
  const u32 rank = team.rank;
  const u32 flow = block.index;
  const u32 d = a.lookahead;
  const bool shares = a.shareWith != 0;
  const u32 words = a.chunkBytes / 16;
  constexpr u32 kAtOnce = 2;  // more words of a chunk for each thread: one peer after the other
  const u32 chunks =
      static_cast<u32>(flow < a.flows ? (a.chunks - flow + a.flows - 1) / a.flows : 0);
  const u32 steps = chunks == 0 ? 0 : chunks + (shares ? d : 0);  // that we send
  const auto chunkAt = [&](auto* part, u32 r, u64 chunk) {
    return chunkOf(part, a.counts[r] * sizeof(Element), chunk * a.flows + flow, a.chunkBytes);
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
    sent[r] = team.state->sent[(rank + r) % kRanks][flow];  // [step]
    received[r] = team.state->received[r][flow];            // [rank]
  }
  // Whether there is room for a step, which the end of the step before asks. Peers free the room of
  // step s - kDepth in their round s - kDepth + d, for which they need nothing that we have yet to
  // publish, as d <= kDepth - 2.
  const auto awaitRoom = [&](u32 s) {
    return awaitPeers<kRanks>(team, block, [&](u32 peer) {
      if (s >= steps) return;
      const u32 number = team.state->sent[peer][flow] + s;
      awaitFlag(team, block, creditOf(team, rank, peer, flow), number + 1 - kDepth, peer);
    });
  };
  // Whether everybody's step s - d is here.
  const auto awaitSteps = [&](u32 s) {
    return awaitPeers<kRanks>(team, block, [&](u32 peer) {
      const u32 number = team.state->received[peer][flow] + s - d;
      awaitFlag(team, block, readyOf(team, peer, rank, flow), number + 1, peer);
    });
  };
  if (!awaitRoom(0)) return;
  for (u32 s = 0; s < (chunks == 0 ? 0 : steps + d); ++s) {
    const u32 arrived = s - d;
    const auto slotOfStep = [&](u32 step) {
      return reinterpret_cast<Word16*>(
          stepOf(team, rank, (rank + step) % kRanks, flow, sent[step] + s));
    };
    if (s < chunks) {
      const PeerChunks<kRanks, const char> in(rank, [&](u32 r) { return input(r, s); });
      if (words > kAtOnce * block.threads) {
        CTRAN_UNROLL
        for (u32 step = 1; step < kRanks; ++step) {
          Word16* slot = slotOfStep(step);
          readUser(block, in.of[step],
                   [&](u32 i, const Word16& v) { slot[i] = scaled<Element, Op>(v, factor); });
        }
      } else {
        forPeers<kRanks>(
            block, words,
            [&](u32 step, u32 i) { return scaled<Element, Op>(loadUser(in.of[step], i), factor); },
            [&](u32 step, u32 i, const Word16& v) {
              if (u64{i} * 16 < in.of[step].count) slotOfStep(step)[i] = v;
            });
      }
    }
    if (s >= d) {
      if (!awaitSteps(s)) return;
      if (s - d < chunks) {
        const auto own = input(rank, s - d);
        const auto out = output(rank, s - d);
        constexpr u32 kWords = kRanks <= 4 ? 2 : 1;
        const u32 mine = wordsOf(own);
        for (u32 i = block.thread; i < mine; i += kWords * block.threads) {
          Word16 contributions[kWords][kRanks];
          Word16 ours[kWords];
          CTRAN_UNROLL
          for (u32 k = 0; k < kWords; ++k) {
            const u32 at = i + k * block.threads < mine ? i + k * block.threads : i;
            CTRAN_UNROLL
            for (u32 r = 0; r < kRanks; ++r) {
              // Our own slot holds nothing, but can be read: no branch between the loads.
              const char* slot = stepOf(team, r, rank, flow, received[r] + arrived);
              contributions[k][r] = loadWords(reinterpret_cast<const Word16*>(slot) + at);
            }
            ours[k] = loadUser(own, at);
          }
          CTRAN_UNROLL
          for (u32 k = 0; k < kWords; ++k) {
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
        const auto slotFrom = [&](u32 step) {
          const u32 peer = (rank + step) % kRanks;
          const u32 number = team.state->received[peer][flow] + arrived;
          return reinterpret_cast<const Word16*>(stepOf(team, peer, rank, flow, number)) + words;
        };
        if (words > kAtOnce * block.threads) {
          CTRAN_UNROLL
          for (u32 step = 1; step < kRanks; ++step) {
            const Word16* slot = slotFrom(step);
            writeUser(block, out.of[step], [&](u32 i) { return loadWords(slot + i); });
          }
        } else {
          forPeers<kRanks>(
              block, words, [&](u32 step, u32 i) { return loadWords(slotFrom(step) + i); },
              [&](u32 step, u32 i, const Word16& v) { storeUser(out.of[step], i, v); });
        }
      }
    }
    if (!awaitRoom(s + 1)) return;
    const u32 publisher = publisherOf(block);
    for (u32 peer = block.thread - publisher; peer < kRanks; peer += block.threads) {
      if (peer == rank) continue;
      fenceSystem();
      if (s < steps) {
        storeFenced(readyOf(team, rank, peer, flow), team.state->sent[peer][flow] + s + 1);
      }
      if (s >= d) {
        storeFenced(creditOf(team, peer, rank, flow),
                    team.state->received[peer][flow] + arrived + 1);
      }
    }
  }
  block.sync();
  for (u32 peer = block.thread; peer < kRanks; peer += block.threads) {
    if (peer == rank) continue;
    team.state->sent[peer][flow] += steps;
    team.state->received[peer][flow] += steps;
  }
}

}  // namespace ctran::device

#ifdef CTRAN_ELEMENT
CTRAN_FLOWS_KERNEL(ctranReducePipeline, ReduceArguments, 512,
                   (reducePipeline<CTRAN_ELEMENT, CTRAN_OP, CTRAN_RANKS>(arguments, block)))
#endif
