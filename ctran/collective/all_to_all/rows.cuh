#pragma once

#include "ctran/collective/exchange/flows.cuh"
#include "ctran/gpu/device/receive.cuh"

// All-to-all of rows whose numbers stand in device memory: the host never learns them. Two kernels.
// The first, of one block, tells every rank in packets what each sends and has room for: they all
// check the same table, so all go on, or all refuse, with the same words. It leaves behind where
// this rank's rows lie. The second moves them over flows, of which each pair has so many whatever
// its size: a flow that has no step does nothing.

namespace ctran::device {

struct CountRowsArguments {
  Team team;
  const i64* sendCounts;  ///< [size]
  const i64* expected;    ///< [size], or null
  i64* received;          ///< [size] written, or null
  u64 inputRows;
  u64 outputRows;
  u64 rowBytes;
};

struct MoveRowsArguments {
  Team team;
  const char* input;
  char* output;
  u32 flows;
};

/// Of a rank that takes what comes.
inline constexpr i64 kNoExpectation = static_cast<i64>(1ull << 63);

/// What a rank says: rows for each rank, rows expected of each, and how many its input and its
/// output have.
CTRAN_INLINE constexpr u32 expectedAt(u32 size, u32 rank) { return size + rank; }
CTRAN_INLINE constexpr u32 inputRowsAt(u32 size) { return 2 * size; }
CTRAN_INLINE constexpr u32 outputRowsAt(u32 size) { return 2 * size + 1; }
CTRAN_INLINE constexpr u32 saidWords(u32 size) { return 2 * size + 2; }

/// What is wrong with what is sent by `rank`, or to it, if something is.
CTRAN_INLINE Refusal checkRows(const RowTable& table, u32 size, u32 rank) {
  const i64* own = table.said[rank];
  i64 left = own[inputRowsAt(size)];
  for (u32 r = 0; r < size; ++r) {
    if (own[r] < 0 || own[r] > left) return {kRefusedSend, rank, r, 0, own[r], left};
    left -= own[r];
  }
  left = own[outputRowsAt(size)];
  for (u32 r = 0; r < size; ++r) {
    const i64 rows = table.said[r][rank];
    const i64 expected = own[expectedAt(size, r)];
    if (expected != kNoExpectation && rows != expected) {
      return {kRefusedExpected, r, rank, 0, rows, expected};
    }
    // Of a number that makes no sense, its sender says so.
    if (rows > left) return {kRefusedRoom, r, rank, 0, rows, left};
    if (rows > 0) left -= rows;
  }
  return {};
}

template <u32 kRanks>
CTRAN_INLINE void countRows(const CountRowsArguments& a, const Block& block) {
  const Team& team = a.team;
  RowTable& table = team.state->rows;
  const u32 rank = team.rank;
  const u32 epoch = begin(team, block);
  if (epoch == 0) return;
  const u32 others = ((1u << kRanks) - 1) & ~(1u << rank);
  for (u32 i = block.thread; i < saidWords(kRanks); i += block.threads) {
    i64 word = kNoExpectation;
    if (i < kRanks) {
      word = a.sendCounts[i];
    } else if (i < inputRowsAt(kRanks)) {
      if (a.expected) word = a.expected[i - kRanks];
    } else {
      word = static_cast<i64>(i == inputRowsAt(kRanks) ? a.inputRows : a.outputRows);
    }
    const u64 bits = static_cast<u64>(word);
    Payload payload = {};
    payload.w[0] = static_cast<u32>(bits);
    payload.w[1] = static_cast<u32>(bits >> 32);
    CTRAN_UNROLL
    for (u32 step = 1; step < kRanks; ++step) {
      storePacket(slotOf(team, epoch, rank, (rank + step) % kRanks) + i, payload, epoch);
    }
    table.said[rank][i] = word;
  }
  for (u32 i = block.thread; i < saidWords(kRanks); i += block.threads) {
    Payload parts[kRanks];
    if (!receive(team, block, epoch, i, others, parts)) break;
    CTRAN_UNROLL
    for (u32 r = 0; r < kRanks; ++r) {
      if (r == rank) continue;
      table.said[r][i] = static_cast<i64>(parts[r].w[0] | static_cast<u64>(parts[r].w[1]) << 32);
    }
  }
  if (!goesOn(block)) return;
  for (u32 r = block.thread; r < kRanks; r += block.threads) {
    table.refusals[r] = checkRows(table, kRanks, r);
    i64 before = 0, arrived = 0;
    for (u32 k = 0; k < r; ++k) {
      before += table.said[rank][k];
      arrived += table.said[k][rank];
    }
    table.sendAt[r] = static_cast<u64>(before) * a.rowBytes;
    table.sendBytes[r] = static_cast<u64>(table.said[rank][r]) * a.rowBytes;
    table.receiveAt[r] = static_cast<u64>(arrived) * a.rowBytes;
    table.receiveBytes[r] = static_cast<u64>(table.said[r][rank]) * a.rowBytes;
  }
  block.sync();
  if (block.thread == 0) {
    for (u32 r = 0; r < kRanks; ++r) {
      if (table.refusals[r].why == 0) continue;
      // No kernel after this one does anything: nothing is written that has no room.
      giveUp(team, *block.guard, epoch, kRefused, table.refusals[r]);
      break;
    }
  }
  if (!goesOn(block)) return;
  if (a.received) {
    for (u32 r = block.thread; r < kRanks; r += block.threads) {
      a.received[r] = table.said[r][rank];
    }
  }
  end(team, block, epoch);
}

/// `flows` for what goes to each other rank and for what comes from it, and for the copy.
CTRAN_INLINE u32 moveRowsFlows(u32 size, u32 flows) { return (2 * size - 1) * flows; }

CTRAN_INLINE void moveRows(const MoveRowsArguments& a, const Block& block) {
  const Team& team = a.team;
  if (!enter(team, block) || block.index >= moveRowsFlows(team.size, a.flows)) return;
  const RowTable& table = team.state->rows;
  const u32 which = block.index / a.flows;
  const u32 step = which / 2 + 1;
  Transfer t = {};
  t.flows = a.flows;
  t.stepBytes = team.stepBytes;
  if (which == 2 * (team.size - 1)) {
    t.kind = kCopy;
    t.peer = team.rank;
  } else {
    t.kind = which % 2 == 0 ? kSend : kReceive;
    t.peer = (team.rank + (t.kind == kSend ? step : team.size - step)) % team.size;
  }
  if (t.kind != kReceive) {
    t.from = a.input + table.sendAt[t.peer];
    t.bytes = table.sendBytes[t.peer];
  }
  if (t.kind != kSend) {
    t.to = a.output + table.receiveAt[t.peer];
    t.bytes = table.receiveBytes[t.peer];
  }
  // Whole steps in turn: of what is less, the other flows have none.
  const u32 flow = block.index % a.flows;
  if (static_cast<u64>(flow) * team.stepBytes < t.bytes) transfer(team, block, t, flow);
}

}  // namespace ctran::device

#ifdef CTRAN_RANKS
CTRAN_KERNEL(ctranCountRows, CountRowsArguments, 64, (countRows<CTRAN_RANKS>(arguments, block)))
CTRAN_FLOWS_KERNEL(ctranMoveRows, MoveRowsArguments, CTRAN_TWO_BLOCKS, moveRows(arguments, block))
#endif
