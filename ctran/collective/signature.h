#pragma once

#include <cstdint>
#include <string>

#include "ctran/collective/collective.h"
#include "ctran/trace/operation_ring.h"

namespace ctran {

/// Hash of all collectives up to and including this one: `before` continued with the fields on
/// which all ranks have to agree. One comparison thus finds a disagreement now or at any time
/// before.
uint64_t extendSignature(uint64_t before, const Collective& collective);

/// The sequence number of the barrier with which a communicator is created. People count from the
/// collective after it.
inline constexpr uint64_t kCreation = 1;

/// The operation as it is recorded for other ranks to read.
OperationRecord makeRecord(const Collective& collective, uint64_t sequence, uint64_t signature);

/// The peer of a send or recv; -1 of another operation.
int peerOf(const OperationRecord& record);

/// "all_reduce(sum, float32, 1024 elements), its collective 12", for people.
std::string describe(const OperationRecord& record);

/// Of a record whose writer does not know which reduction it is, as part of `what`.
inline constexpr uint64_t kReductionNotTold = uint64_t{0xff} << 16;

/// The words of a record that may come from anybody, for people and programs.
struct RecordedCall {
  std::string kind, type, text;  ///< "?" where there is no such kind or type
  int root = 0;                  ///< or the peer
};
RecordedCall recordedCall(uint64_t what, uint64_t count);

}  // namespace ctran
