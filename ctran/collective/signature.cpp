#include "ctran/collective/signature.h"

#include "ctran/collective/exchange/persistent_copy.h"
#include "ctran/collective/plan/algorithm.h"
#include "ctran/collective/preference.h"

namespace ctran {
namespace {

constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;  // an odd constant: a bijection for each value
  return hash ^ (hash >> 29);
}

/// Returns what all ranks have to pass alike, except for counts, in one word.
uint64_t pack(const Collective& c) {
  const uint64_t op = isReduction(c.kind) ? static_cast<uint64_t>(c.op.kind) : 0;
  const uint64_t root = hasRoot(c.kind) ? static_cast<uint64_t>(c.root) : 0;
  const uint64_t type = c.kind == CollectiveKind::Barrier ? 0 : static_cast<uint64_t>(c.type);
  const uint64_t flags = (c.onRail ? 1 : 0) | (c.makesGroup ? 2 : 0) | (c.startsFunctions ? 4 : 0);
  return static_cast<uint64_t>(c.kind) | type << 8 | op << 16 | flags << 24 | root << 32;
}

Collective unpack(uint64_t what) {
  Collective c;
  c.kind = static_cast<CollectiveKind>(what & 0xff);
  c.type = static_cast<DataType>(what >> 8 & 0xff);
  c.op.kind = static_cast<ReduceKind>(what >> 16 & 0xff);
  c.onRail = (what >> 24 & 1) != 0;
  c.makesGroup = (what >> 24 & 2) != 0;
  c.startsFunctions = (what >> 24 & 4) != 0;
  c.root = static_cast<int>(what >> 32);
  return c;
}

/// Returns what all ranks have to pass alike in a row exchange, except for the size of a row.
uint64_t formOf(const RowExchange& x) {
  const uint64_t flags =
      (x.dedup ? 1 : 0) | (x.weights != nullptr ? 2 : 0) | (x.chunkRows != nullptr ? 4 : 0);
  return mix(flags, x.chunks);
}

}  // namespace

uint64_t extendSignature(uint64_t before, const Collective& c) {
  uint64_t hash = mix(mix(before, 1), pack(c));
  if (c.hints) hash = mix(hash, c.hints->hash);
  if (c.plan) hash = mix(hash, c.plan->hash());
  if (c.persistent) hash = mix(hash, c.persistent->barrier + 1);
  switch (c.kind) {
    case CollectiveKind::AllGatherV:
      for (const Block& block : c.outputs) hash = mix(hash, block.count);
      return hash;
    case CollectiveKind::ReduceScatterV:
      for (const Block& block : c.inputs) hash = mix(hash, block.count);
      return hash;
    case CollectiveKind::AllToAllV:  // counts belong to pairs of ranks; they compare them
    case CollectiveKind::Barrier:
      return hash;
    case CollectiveKind::AllToAllVDynamic:
    case CollectiveKind::AllToAllVCombine:
      return mix(mix(hash, c.count), formOf(*c.rows));
    default:
      return mix(hash, c.count);
  }
}

OperationRecord makeRecord(const Collective& c, uint64_t sequence, uint64_t signature) {
  return {sequence, signature, pack(c), c.count, OperationRecord::State::Running};
}

OperationRecord makeWindowRecord(CollectiveKind kind, int peer, uint64_t count) {
  const uint64_t what = static_cast<uint64_t>(kind) | static_cast<uint64_t>(peer) << 32;
  return {0, 0, what, count, OperationRecord::State::Running};
}

int peerOf(const OperationRecord& record) {
  const Collective c = unpack(record.what);
  return c.kind == CollectiveKind::Send || c.kind == CollectiveKind::Recv ? c.root : -1;
}

std::string describe(const OperationRecord& record) {
  Collective c = unpack(record.what);
  c.count = record.count;
  std::string text = c.describe();
  if (record.sequence != 0) {
    text += ", its collective " + std::to_string(record.sequence - kCreation);
  }
  return text;
}

bool startsFunctions(const OperationRecord& record) { return unpack(record.what).startsFunctions; }

RecordedCall recordedCall(uint64_t what, uint64_t count) {
  const bool isTold = (what & kReductionNotTold) != kReductionNotTold;
  Collective c = unpack(isTold ? what : what & ~kReductionNotTold);
  c.count = count;
  const bool isKnown = c.kind <= CollectiveKind::Signal &&
                       static_cast<int>(c.type) < kDataTypeCount &&
                       static_cast<int>(c.op.kind) < kReduceKindCount;
  if (!isKnown) return {"?", "?", "?", 0};
  std::string text = c.describe();
  if (!isTold && isReduction(c.kind)) {
    const std::string guess = std::string(nameOf(c.op.kind)) + ", ";
    text.erase(text.find(guess), guess.size());
  }
  return {std::string(nameOf(c.kind)), std::string(nameOf(c.type)), std::move(text), c.root};
}

std::string Collective::describe() const {
  if (makesGroup) return "split, dup or new_window";
  if (startsFunctions) return "the first collective that a registered algorithm serves";
  std::string text = std::string(nameOf(kind)) + "(";
  const std::string peer = root < 0 ? "any rank" : "rank " + std::to_string(root);
  switch (kind) {
    case CollectiveKind::Barrier:
      return text + ")";
    case CollectiveKind::WaitSignal:
      return text + (count > 0 ? "signal " + std::to_string(count - 1) : "from " + peer) + ")";
    case CollectiveKind::Signal:
      return text + (count > 0 ? std::to_string(count - 1) + ", " : "") + "to " + peer + ")";
    case CollectiveKind::Put:
      return text + std::to_string(count) + " bytes, to " + peer + ")";
    case CollectiveKind::Get:
      return text + std::to_string(count) + " bytes, from " + peer + ")";
    case CollectiveKind::Flush:
      return text + peer + ")";
    default:
      break;
  }
  if (isReduction(kind)) text += std::string(nameOf(op.kind)) + ", ";
  text += nameOf(type);
  const bool ofRows =
      kind == CollectiveKind::AllToAllVDynamic || kind == CollectiveKind::AllToAllVCombine;
  if (kind != CollectiveKind::AllToAllV) {
    text += (ofRows ? ", rows of " : ", ") + std::to_string(count) + " elements";
  }
  if (kind == CollectiveKind::Send) {
    text += ", to rank " + std::to_string(root);
  } else if (kind == CollectiveKind::Recv) {
    text += ", from " + peer;
  } else if (hasRoot(kind)) {
    text += ", root " + std::to_string(root);
  }
  if (tag != 0) text += ", tag " + std::to_string(tag);
  return text + ")";
}

}  // namespace ctran
