#pragma once

#include "ctran/gpu/device/flow.cuh"
#include "ctran/gpu/device/symmetric.cuh"

// Messages between ranks over flows: what gather, scatter, broadcast, all-gather, all-to-all, send
// and receive come to when there is much to move. Every message is cut into steps, dealt out to a
// number of flows that both ends derive from its size; a block serves one flow of one message. The
// sender pushes, which is the transfer; the receiver copies from its own memory.
//
// Several messages from one rank to another are a chain: a block serves one flow of all of them, in
// order. Chains do not wait for each other, nor do the flows of one. Both ends have the same chain,
// whether in one kernel or in several, so every flow sees the same messages in the same order.
//
// Where nothing else has checked that both ends mean the same message, its first step on every flow
// carries a label: the receiver refuses what it does not await before it gives the first credit.
// Such a message may be of nothing, which is one empty step.
//
// A message of more than kDepth steps on a flow goes straight to its place after those, if the
// receiver's memory is mapped by all: the receiver offers it with its first credit, for which the
// sender waits before that step anyway. One step of nothing follows, which says that all is there.

namespace ctran::device {

enum : u32 { kSend = 0, kReceive = 1, kSwap = 2, kCopy = 3, kRelay = 4 };

/// Swap: sends `from` and receives to the same place, of the same size. Copy: within this rank.
/// Relay: receives, and sends it on to all but the sender.
struct Transfer {
  const char* from = nullptr;
  char* to = nullptr;
  u64 bytes = 0;
  u32 kind = kSend;
  u32 peer = 0;
  u32 flows = 0;
  u32 stepBytes = 0;   ///< what a step carries, at most Team::stepBytes
  u32 isLabelled = 0;  ///< not 0: with bytes and tag
  u32 sendTag = 0;
  u32 receiveTag = 0;
  u32 blocks = 0;     ///< of the first of a chain: the most flows that one of the chain has
  u32 next = 0;       ///< which comes after it in the chain; 0: none
  Word16 offer = {};  ///< of a receive: where others have `to`, if they do
};

inline constexpr u32 kMaxTransfers = 2 * kMaxRanks;

/// Each transfer is a chain of its own.
struct ExchangeArguments {
  Team team;
  u32 count;
  Transfer transfers[kMaxTransfers];
};

/// Of any number of transfers, which are in this rank's memory.
struct ExchangeChainsArguments {
  Team team;
  u32 count;  ///< of chains, whose first transfers come before all others
  const Transfer* transfers;
};

/// Writes some of those. As a kernel, so that every replay of a graph writes them again.
struct WriteTransfersArguments {
  Transfer* to;
  u32 count;
  Transfer transfers[kMaxTransfers];
};

CTRAN_INLINE Word16 makeLabel(u64 bytes, u32 tag) {
  return {{static_cast<u32>(bytes), static_cast<u32>(bytes >> 32), tag, 0}};
}

/// One end of a flow while a message passes.
struct FlowEnd {
  u32 flow;
  u32 step;  ///< the next one's number
};

/// Whether there is room for the next step; by one thread, before a barrier.
CTRAN_INLINE void awaitRoom(const Team& team, const Block& block, const Transfer& t,
                            const FlowEnd& end) {
  awaitFlag(team, block, creditOf(team, team.rank, t.peer, end.flow), end.step + 1 - kDepth,
            t.peer);
}

/// What comes with a credit, in the same sector.
CTRAN_INLINE Word16* offerAt(u32* credit) { return reinterpret_cast<Word16*>(credit + 4); }

/// There is room for it. `more`: waits for that of the next, too. False, as below: a wait has
/// failed, return.
CTRAN_INLINE bool sendStep(const Team& team, const Block& block, const Transfer& t, FlowEnd& end,
                           u64 at, bool isFirst, bool more) {
  const u64 bytes = t.bytes - at < t.stepBytes ? t.bytes - at : t.stepBytes;
  const auto source = bytesOf<const char>(t.from + at, bytes);
  Word16* slot = reinterpret_cast<Word16*>(stepOf(team, team.rank, t.peer, end.flow, end.step));
  readUser(block, source, [&](u32 i, const Word16& v) { slot[i] = v; });
  ++end.step;
  if (block.thread == 0 && more) awaitRoom(team, block, t, end);
  if (!goesOn(block)) return false;
  if (block.thread == publisherOf(block)) {
    if (isFirst && t.isLabelled) {
      *labelOf(team, team.rank, t.peer, end.flow, end.step - 1) = makeLabel(t.bytes, t.sendTag);
    }
    fenceSystem();
    storeFenced(readyOf(team, team.rank, t.peer, end.flow), end.step);
  }
  return true;
}

/// The rest of the flow's part of a message, from `at` on, to where the receiver has offered.
CTRAN_INLINE void sendRest(const Team& team, const Block& block, const Transfer& t, FlowEnd& end,
                           u64 at, u64 stride, const Word16& offer) {
  char* to = offered(team, t.peer, offer);
  for (; at < t.bytes; at += stride) {
    const u64 bytes = t.bytes - at < t.stepBytes ? t.bytes - at : t.stepBytes;
    const auto source = bytesOf<const char>(t.from + at, bytes);
    const auto target = bytesOf<char>(to + at, bytes);
    copyUser(block, source, target);
  }
  ++end.step;
  block.sync();
  if (block.thread == publisherOf(block)) {
    fenceSystem();
    storeFenced(readyOf(team, team.rank, t.peer, end.flow), end.step);
  }
}

/// That has arrived when this returns.
CTRAN_INLINE bool receiveRest(const Team& team, const Block& block, const Transfer& t,
                              FlowEnd& end) {
  ++end.step;
  if (block.thread == 0) {
    awaitFlag(team, block, readyOf(team, t.peer, team.rank, end.flow), end.step, t.peer);
  }
  if (!goesOn(block)) return false;
  if (block.thread == publisherOf(block)) {
    fenceSystem();
    storeFenced(creditOf(team, t.peer, team.rank, end.flow), end.step);
  }
  return true;
}

/// One thread, of a message whose first step is there: refuses it unless its label is `expected`.
/// By value, so that nothing of the kernel has to be in memory.
CTRAN_NOINLINE void checkLabel(const Team& team, Guard* guard, u32 peer, const Word16* at,
                               Word16 expected) {
  const Word16 label = loadWords(at);
  bool same = true;
  CTRAN_UNROLL
  for (u32 k = 0; k < 3; ++k) same = same && label.w[k] == expected.w[k];
  if (same) return;
  const auto bytes = [](const Word16& w) {
    return static_cast<i64>(w.w[0] | static_cast<u64>(w.w[1]) << 32);
  };
  giveUp(team, *guard, nextEpoch(team.state->epoch[0]), kRefused,
         {kRefusedMessage,
          peer,
          team.rank,
          0,
          bytes(label),
          bytes(expected),
          {label.w[2], expected.w[2]}});
}

/// `offers`: says with the credit where the rest may go.
CTRAN_INLINE bool receiveStep(const Team& team, const Block& block, const Transfer& t, FlowEnd& end,
                              u64 at, bool isFirst, bool offers) {
  if (block.thread == 0) {
    awaitFlag(team, block, readyOf(team, t.peer, team.rank, end.flow), end.step + 1, t.peer);
  }
  if (!goesOn(block)) return false;
  const u64 bytes = t.bytes - at < t.stepBytes ? t.bytes - at : t.stepBytes;
  const auto target = bytesOf<char>(t.to + at, bytes);
  const Word16* slot =
      reinterpret_cast<const Word16*>(stepOf(team, t.peer, team.rank, end.flow, end.step));
  writeUser(block, target, [&](u32 i) { return loadWords(slot + i); });
  if (isFirst && t.isLabelled) {
    const Word16* label = labelOf(team, t.peer, team.rank, end.flow, end.step);
    if (block.thread == 0)
      checkLabel(team, block.guard, t.peer, label, makeLabel(t.bytes, t.receiveTag));
    if (!goesOn(block)) return false;
  } else {
    block.sync();
  }
  ++end.step;
  if (block.thread == publisherOf(block)) {
    u32* credit = creditOf(team, t.peer, team.rank, end.flow);
    if (offers) *offerAt(credit) = t.offer;
    fenceSystem();
    storeFenced(credit, end.step);
  }
  return true;
}

CTRAN_INLINE void copyStep(const Block& block, const Transfer& t, u64 at) {
  const u64 bytes = t.bytes - at < t.stepBytes ? t.bytes - at : t.stepBytes;
  const auto source = bytesOf<const char>(t.from + at, bytes);
  const auto target = bytesOf<char>(t.to + at, bytes);
  copyUser(block, source, target);
}

CTRAN_INLINE void relay(const Team& team, const Block& block, const Transfer& t, u32 flow) {
  const auto gets = [&](u32 r) { return r != team.rank && r != t.peer; };
  const u32 first = team.state->received[t.peer][flow];
  u32 k = 0;
  for (u64 at = static_cast<u64>(flow) * t.stepBytes; at < t.bytes;
       at += static_cast<u64>(t.flows) * t.stepBytes, ++k) {
    for (u32 r = block.thread; r < team.size; r += block.threads) {
      if (r == team.rank) {
        awaitFlag(team, block, readyOf(team, t.peer, team.rank, flow), first + k + 1, t.peer);
      } else if (gets(r)) {
        awaitFlag(team, block, creditOf(team, team.rank, r, flow),
                  team.state->sent[r][flow] + k + 1 - kDepth, r);
      }
    }
    if (!goesOn(block)) return;
    const u64 bytes = t.bytes - at < t.stepBytes ? t.bytes - at : t.stepBytes;
    const auto target = bytesOf<char>(t.to + at, bytes);
    const Word16* slot =
        reinterpret_cast<const Word16*>(stepOf(team, t.peer, team.rank, flow, first + k));
    Word16* others[kMaxRanks - 2];
    u32 count = 0;
    CTRAN_UNROLL
    for (u32 r = 0; r < kMaxRanks; ++r) {
      if (r >= team.size || !gets(r)) continue;
      const u32 step = team.state->sent[r][flow] + k;
      Word16* to = reinterpret_cast<Word16*>(stepOf(team, team.rank, r, flow, step));
      CTRAN_UNROLL
      for (u32 j = 0; j < kMaxRanks - 2; ++j) {  // by selection: others[count] would be in memory
        if (j == count) others[j] = to;
      }
      ++count;
    }
    writeUser(
        block, target, [&](u32 i) { return loadWords(slot + i); },
        [&](u32 i, const Word16& v) {
          CTRAN_UNROLL
          for (u32 j = 0; j < kMaxRanks - 2; ++j) {
            if (j < count) others[j][i] = v;
          }
        });
    block.sync();
    for (u32 r = block.thread - publisherOf(block); r < team.size; r += block.threads) {
      if (r == team.rank && k == 0) *offerAt(creditOf(team, t.peer, team.rank, flow)) = {};
      fenceSystem();
      if (gets(r)) {
        storeFenced(readyOf(team, team.rank, r, flow), team.state->sent[r][flow] + k + 1);
      } else if (r == team.rank) {
        storeFenced(creditOf(team, t.peer, team.rank, flow), first + k + 1);
      }
    }
  }
  block.sync();
  for (u32 r = block.thread; r < team.size; r += block.threads) {
    if (gets(r)) team.state->sent[r][flow] += k;
    if (r == team.rank) team.state->received[t.peer][flow] += k;
  }
}

/// One flow of a message, by one block that has entered.
CTRAN_INLINE void transfer(const Team& team, const Block& block, const Transfer& t, u32 flow) {
  if (t.kind == kRelay) return relay(team, block, t, flow);
  const bool sends = t.kind == kSend || t.kind == kSwap;
  const bool receives = t.kind == kReceive || t.kind == kSwap;
  FlowEnd out = {flow, sends ? team.state->sent[t.peer][flow] : 0};
  FlowEnd in = {flow, receives ? team.state->received[t.peer][flow] : 0};
  if (sends && block.thread == 0) awaitRoom(team, block, t, out);
  if (!goesOn(block)) return;
  const u64 stride = static_cast<u64>(t.flows) * t.stepBytes;
  bool sending = sends, receiving = receives;
  u32 k = 0;
  const bool mayBeEmpty = flow == 0 && t.isLabelled;
  for (u64 at = static_cast<u64>(flow) * t.stepBytes; at < t.bytes || (mayBeEmpty && k == 0);
       at += stride, ++k) {
    if (t.kind == kCopy) copyStep(block, t, at);
    if (sending && k == kDepth) {
      const Word16 offer = loadWords(offerAt(creditOf(team, team.rank, t.peer, flow)));
      if (isOffer(offer)) {
        sendRest(team, block, t, out, at, stride, offer);
        sending = false;
      }
    }
    if (sending && !sendStep(team, block, t, out, at, k == 0, at + stride < t.bytes)) return;
    if (receiving && k == kDepth && isOffer(t.offer)) {
      if (!receiveRest(team, block, t, in)) return;
      receiving = false;
    }
    const bool offers = k == 0 && t.bytes - at > kDepth * stride;
    if (receiving && !receiveStep(team, block, t, in, at, k == 0, offers)) return;
    if (t.kind != kCopy && !sending && !receiving) break;
  }
  if (block.thread != 0) return;
  if (sends) team.state->sent[t.peer][flow] = out.step;
  if (receives) team.state->received[t.peer][flow] = in.step;
}

CTRAN_INLINE void exchange(const ExchangeArguments& arguments, const Block& block) {
  const Team& team = arguments.team;
  if (!enter(team, block)) return;
  u32 flow = block.index;
  u32 which = 0;
  while (which < arguments.count && flow >= arguments.transfers[which].flows) {
    flow -= arguments.transfers[which++].flows;
  }
  if (which < arguments.count) transfer(team, block, arguments.transfers[which], flow);
}

/// Apart, as the loop takes registers.
CTRAN_INLINE void exchangeChains(const ExchangeChainsArguments& arguments, const Block& block) {
  const Team& team = arguments.team;
  if (!enter(team, block)) return;
  u32 flow = block.index;
  u32 which = 0;
  while (which < arguments.count && flow >= arguments.transfers[which].blocks) {
    flow -= arguments.transfers[which++].blocks;
  }
  if (which >= arguments.count) return;
  do {
    const Transfer& t = arguments.transfers[which];
    if (flow < t.flows) transfer(team, block, t, flow);
    which = t.next;
    // A barrier: the next one begins with the counts that this one leaves.
  } while (which != 0 && goesOn(block));
}

CTRAN_INLINE void writeTransfers(const WriteTransfersArguments& a, const Block& block) {
  for (u32 i = block.thread; i < a.count; i += block.threads) a.to[i] = a.transfers[i];
}

}  // namespace ctran::device

#ifdef CTRAN_RANKS
CTRAN_FLOWS_KERNEL(ctranExchange, ExchangeArguments, CTRAN_TWO_BLOCKS, exchange(arguments, block))
CTRAN_FLOWS_KERNEL(ctranExchangeChains, ExchangeChainsArguments, CTRAN_TWO_BLOCKS,
                   exchangeChains(arguments, block))
CTRAN_KERNEL(ctranWriteTransfers, WriteTransfersArguments, 32, (writeTransfers(arguments, block)))
#endif
