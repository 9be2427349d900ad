#pragma once

#include "ctran/gpu/device/platform.cuh"

// What a kernel knows of its communicator. The host fills these in; all of it has fixed addresses,
// so a captured launch stays valid for every replay.

namespace ctran::device {

inline constexpr u32 kMaxRanks = 8;
inline constexpr u32 kMaxBlocks = 128;

/// Streams of steps from one rank to another, see flow.cuh: Team::flows of them, each with room for
/// kDepth steps of Team::stepBytes.
inline constexpr u32 kMaxFlows = 128;
inline constexpr u32 kDepth = 4;
inline constexpr u32 kFlagWords = 8;  ///< distance of flags, so that no two share a sector

/// Persistent operations of a communicator that are carried out by copy engines, at a time; see
/// collective/exchange/copy_signals.cuh.
inline constexpr u32 kBarriers = 128;

/// Of every rank: [kMaxRanks][kMaxFlows] ready, as many credits, then [kBarriers][kMaxRanks].
inline constexpr u32 kFlags = 2 * kMaxRanks * kMaxFlows + kBarriers * kMaxRanks;

/// Behind the flags: [kMaxRanks][kMaxFlows][kDepth] labels of messages, of 16 bytes.
inline constexpr u32 kLabels = kMaxRanks * kMaxFlows * kDepth;
inline constexpr u64 kFlagBytes = u64{kFlags} * kFlagWords * 4 + u64{kLabels} * 16;

/// Scratch is [kRegions][size][slotBytes]: operation e uses region e % 3. While an operation runs,
/// a peer may be one ahead but not two (it needs our packets of the next one, which follow this
/// kernel), so the third region is in nobody's hands. Lines have such scratch of their own.
inline constexpr u32 kRegions = 3;

/// Of one rank's memory, that others have mapped.
inline constexpr u32 kSegments = 128;

/// Why a kernel gave up.
enum : u32 { kRunning = 0, kAborted = 1, kTimedOut = 2, kRefused = 3 };

/// Why numbers in device memory were refused: a rank sends more rows than its input still has, or
/// a negative number; sends another rank more than that has room for, or other than it expects. Or
/// a message is not the one that its receiver awaits.
enum : u32 { kRefusedSend = 1, kRefusedRoom = 2, kRefusedExpected = 3, kRefusedMessage = 4 };

struct Refusal {
  u32 why;  ///< 0: nothing is wrong
  u32 from;
  u32 to;
  u32 reserved;
  i64 amount;        ///< in rows; of a message, in bytes
  i64 limit;         ///< what is left, or what is expected
  u32 tags[2] = {};  ///< of a message, and of the one that is expected
};

/// Mapped host memory that the host writes at any time and waiting kernels read every ~10 us.
struct Control {
  u32 abort;  ///< not 0: give up
  u32 reserved;
  u64 timeoutNs;  ///< longest wait inside one kernel that has none of its own; 0: for ever
};

/// Mapped host memory that a failing kernel writes; complete once the kernel has ended.
struct Report {
  u32 state;                 ///< kAborted, kTimedOut or kRefused
  u32 epoch;                 ///< of the operation that failed
  u32 waitedFor[kMaxRanks];  ///< [r]: that epoch when some thread was waiting for rank r
  Refusal refusal;           ///< if the state is kRefused
};

/// See collective/all_to_all/rows.cuh.
struct RowTable {
  i64 said[kMaxRanks][2 * kMaxRanks + 2];
  Refusal refusals[kMaxRanks];
  u64 sendAt[kMaxRanks], sendBytes[kMaxRanks];
  u64 receiveAt[kMaxRanks], receiveBytes[kMaxRanks];
};

/// Local device memory, private to a communicator.
struct State {
  u32 epoch[kMaxBlocks];  ///< of the last operation; all equal between kernels, see `nextEpoch`
  u32 failed;             ///< not kRunning: every later kernel returns at once
  u32 sent[kMaxRanks][kMaxFlows];      ///< steps so far, to that rank on that flow
  u32 received[kMaxRanks][kMaxFlows];  ///< steps so far, from that rank
  u32 met[kBarriers][kMaxRanks];       ///< how often this rank and that one have met
  u64 mapped[kMaxRanks][kSegments];    ///< where segments of that rank are here, see symmetric.cuh
  RowTable rows;                       ///< of the last exchange of rows
};

/// Passed by value to every kernel.
struct Team {
  u32 rank;
  u32 size;
  u32 flows;
  u32 stepBytes;             ///< most that one step on a flow carries; a multiple of 32
  u64 slotBytes;             ///< room for what one rank sends to another within one operation
  char* scratch[kMaxRanks];  ///< every rank's packet slots as mapped here; [rank] is our own
  u64 lineBytes;             ///< as slotBytes, of lines; 0: the link does not carry lines whole
  char* lines[kMaxRanks];    ///< as scratch
  char* steps[kMaxRanks];    ///< every rank's room for incoming steps, [from][flows][kDepth]
  u32* flags[kMaxRanks];     ///< every rank's kFlags flags
  u64 timeoutNs;             ///< longest wait inside this kernel; 0: what Control says
  State* state;
  const Control* control;
  Report* report;
};

/// Epochs number the operations of a communicator, from 1; 0 marks memory that holds no packet, so
/// the number after 2^32 - 1 is 1. That keeps `epoch % 3` in its cycle, because 3 divides 2^32 - 1.
CTRAN_INLINE constexpr u32 nextEpoch(u32 epoch) { return epoch == 0xffffffffu ? 1 : epoch + 1; }

}  // namespace ctran::device
