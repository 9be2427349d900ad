#pragma once

#include <cstdint>
#include <string>

#include "ctran/collective/collective.h"
#include "ctran/trace/operation_ring.h"

namespace ctran {

/// Returns a hash of all collectives up to and including this one: it extends `before` by the
/// fields on which all ranks have to agree. So one comparison finds a disagreement now or at any
/// time before.
uint64_t extendSignature(uint64_t before, const Collective& collective);

/// The sequence number of the barrier with which a communicator is created. Messages to people
/// count from the collective after it.
inline constexpr uint64_t kCreation = 1;

/// Returns the operation as it is recorded for other ranks to read.
OperationRecord makeRecord(const Collective& collective, uint64_t sequence, uint64_t signature);

/// The same of an operation of a window; `peer` and `count` as of a Collective of that kind.
OperationRecord makeWindowRecord(CollectiveKind kind, int peer, uint64_t count);

/// Returns the tag that is recorded of such an operation. `window`: its number, where several
/// windows record in one place. `number`: of a signal, among those of its sender to that rank, from
/// 1; 0: not known, or no such signal.
constexpr uint32_t windowTag(uint32_t window, uint64_t number) {
  constexpr int kNumberBits = 24;
  return window << kNumberBits | static_cast<uint32_t>(number & ((1U << kNumberBits) - 1));
}

/// Returns the peer of a send or recv; -1 for another operation.
int peerOf(const OperationRecord& record);

/// Describes a record for people: "all_reduce(sum, float32, 1024 elements), its collective 12".
std::string describe(const OperationRecord& record);

/// Whether the ranks make what functions of the program run on with that operation.
bool startsFunctions(const OperationRecord& record);

/// Marks, as part of `what`, a record whose writer does not know which reduction it is.
inline constexpr uint64_t kReductionNotTold = uint64_t{0xff} << 16;

/// A record that may come from anybody, decoded for people and programs.
struct RecordedCall {
  std::string kind, type, text;  ///< "?" where there is no such kind or type
  int root = 0;                  ///< the root, or the peer
};
RecordedCall recordedCall(uint64_t what, uint64_t count);

}  // namespace ctran
