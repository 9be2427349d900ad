#include "ctran/collective/shm_context.h"

#include <cerrno>

#include "ctran/collective/signature.h"
#include "ctran/os/process_memory.h"

namespace ctran {
namespace {

/// Bytes of the caller's that a rank reads or writes, about: of the largest rank.
size_t touchedBytes(const Collective& c, int size) {
  size_t listed = 0;
  for (const Block& block : c.inputs) listed += block.count;
  for (const Block& block : c.outputs) listed += block.count;
  const bool worldSized = c.kind != CollectiveKind::AllReduce && c.kind != CollectiveKind::Reduce &&
                          c.kind != CollectiveKind::Broadcast;
  return listed * sizeOf(c.type) + c.blockBytes() * (worldSized ? 1 + size : 2);
}

/// How much faster an operation has to be past the caches to be so. Of many ranks each sees in its
/// times what the others do more than what it does; and who writes but does not wait for those who
/// read, as far as the ring has room, does not see what they pay for it.
double gainNeeded(bool isRooted, int size, size_t touched) {
  if (isRooted && touched < 4 * Arena::kRingBytes) return 2;
  return size > 2 ? 1.25 : 1;
}

/// Bytes that a rank touches: fewer than these stay in a core's own caches, where its caller reads
/// them next, and more than those no core finds in a cache that it shares, whatever size that has.
constexpr size_t kFewestStreamed = 512 << 10, kMostCached = 8 << 20;
/// How much faster an operation has to be that leaves its output in memory, not in the caches.
constexpr double kGainOfOutput = 1.1;

}  // namespace

void ShmContext::begin(const Collective& collective) {
  ++sequence_;
  signature_ = extendSignature(signature_, collective);
  Arena::Control& own = arena.control(rank);
  record_ = own.collectives.begin(makeRecord(collective, sequence_, signature_));
  own.begun.store(sequence_, std::memory_order_release);
  isRooted_ = hasRoot(collective.kind);
  const size_t touched = touchedBytes(collective, size);
  const bool isSettled = position_ >= Arena::kRingBytes;
  streams_ = puts_.begin(touched, isSettled, gainNeeded(isRooted_, size, touched));
  streamsOutput_ = touched > kMostCached ||
                   (touched >= kFewestStreamed &&
                    (touched * size > lastLevelCacheBytes() ||
                     takes_.begin(touched, isSettled && !puts_.isTrial(), kGainOfOutput)));
}

void ShmContext::end() {
  puts_.end();
  takes_.end();
  if (!copies_.empty()) copies_ = {};
  if (streamsOutput_) streamFence();
  arena.control(rank).collectives.complete(record_);
}

void ShmContext::beginStep(Board& board, const OperationRecord& record) {
  ++sequence_;
  signature_ = record.signature;
  wholeBoard_ = &board;
  wholeSequence_ = record.sequence;
  isRooted_ = false;
  streams_ = streamsOutput_ = false;  // there is no end of a step at which to wait for such stores
  arena.control(rank).begun.store(sequence_, std::memory_order_release);
}

void ShmContext::populateRing() {
  populate(arena.ring(rank, 0), Arena::kRingBytes);
  hasRing_ = true;
}

bool ShmContext::read(int peer, const Reading& reading) const {
  const int error = readProcessMemory(processes[peer], reading.from, reading.to, reading.bytes);
  if (error == 0) {
    if (!links_.empty() && links_[peer] != nullptr) {
      RecordedLink::add(links_[peer]->copied, reading.bytes);
    }
    return true;
  }
  if (error == ESRCH || error == EFAULT) return false;
  throw Error(ErrorKind::System,
              "the memory of rank " + std::to_string(arena.nameOf(peer)) +
                  " cannot be read any more: " + std::strerror(error),
              {arena.nameOf(peer)}, {},
              "do not take from a process what it had when its communicator was made, or prefer "
              "another algorithm than \"pull\"");
}

void ShmContext::publishLent() {
  std::vector<const std::byte*> addresses;
  size_t bytes = 0;
  for (const auto& data : lent_) {
    if (!data.empty()) addresses.push_back(data.data());
    bytes += data.size();
  }
  copies_.resize(canBeRead(addresses) ? 0 : bytes);
  std::byte* copy = copies_.data();
  for (size_t i = 0; i < lent_.size(); ++i) {
    const std::byte* at = lent_[i].data();
    if (!copies_.empty()) {
      copyBlock(copy, at, lent_[i].size());
      at = copy;
      copy += lent_[i].size();
    }
    std::memcpy(slotData() + i * sizeof at, &at, sizeof at);
  }
  publishSlot();
}

int ShmContext::reduceByReading(const Collective& c, std::byte* to, const std::byte* const* from,
                                size_t count) {
  // What has been read is to be still in the core's cache when it is reduced.
  constexpr size_t kRoom = 512 << 10;
  const size_t piece = kRoom / size / 4096 * 4096;
  static_assert(kRoom / Arena::kMaxRanks >= 4096);
  const size_t element = sizeOf(c.type);
  if (read_ == nullptr) read_.reset(new std::byte[kRoom]);
  const std::byte* sources[Arena::kMaxRanks];
  for (size_t offset = 0; offset < count * element; offset += piece) {
    const size_t bytes = std::min(piece, count * element - offset);
    for (int step = 1; step < size; ++step) {
      const int peer = (rank + step) % size;
      std::byte* const contribution = read_.get() + peer * piece;
      if (!read(peer, {from[peer] + offset, contribution, bytes})) return peer;
      sources[peer] = contribution;
    }
    sources[rank] = from[rank] + offset;
    reduceFn(c.op.kind, c.type)(to + offset, sources, size, bytes / element, size);
  }
  return -1;
}

void ShmContext::recordTraffic(Recording& recording) {
  links_.assign(size, nullptr);
  for (int r = 0; r < size; ++r) {
    if (r != rank) links_[r] = recording.link(arena.nameOf(r));
    if (links_[r] == nullptr) continue;
    constexpr auto kHere = static_cast<uint64_t>(RecordedLink::Transport::SharedMemory);
    links_[r]->transport.store(kHere, std::memory_order_relaxed);
  }
  readOfEach_ = &recording.readOfEach();
}

void ShmContext::throwOther(int peer) {
  if (wholeBoard_ != nullptr) throwMismatch(*wholeBoard_, arena.nameOf(peer), wholeSequence_);
  throwMismatch(arena, peer, sequence_);
}

}  // namespace ctran
