#include "ctran/collective/host_messages.h"

#include <algorithm>
#include <string>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"

namespace ctran {
namespace {

/// The start of every rank's contribution.
struct Announcement {
  uint64_t largest;                  ///< bytes of its largest stream; 0: all are behind this
  uint64_t bytes[Arena::kMaxRanks];  ///< for each rank
};

/// What a rank sends others, itself aside.
size_t bytesForOthers(const HostMessages& messages, int rank) {
  size_t bytes = 0;
  for (int r = 0; r < static_cast<int>(messages.out.size()); ++r) {
    if (r != rank) bytes += messages.out[r].bytes();
  }
  return bytes;
}

bool fitsStep(const HostMessages& messages, int rank) {
  return sizeof(Announcement) + bytesForOthers(messages, rank) <= Arena::kStepBytes;
}

void announceMessages(const HostMessages& messages, int rank, bool fits, std::byte* to) {
  Announcement announcement{};
  std::byte* data = to + sizeof announcement;
  for (int r = 0; r < static_cast<int>(messages.out.size()); ++r) {
    const size_t bytes = messages.out[r].bytes();
    announcement.bytes[r] = bytes;
    if (r == rank) continue;
    if (fits) {
      messages.out[r].read(0, bytes, data);
      data += bytes;
    } else {
      announcement.largest = std::max<uint64_t>(announcement.largest, bytes);
    }
  }
  std::memcpy(to, &announcement, sizeof announcement);
}

void requireRoom(const HostMessages& messages) {
  for (size_t r = 0; r < messages.in.size(); ++r) {
    if (messages.in[r].bytes() == messages.sizes[r]) continue;
    throw Error(ErrorKind::System, "there are " + std::to_string(messages.in[r].bytes()) +
                                       " bytes of room for " + std::to_string(messages.sizes[r]) +
                                       " that come");
  }
}

constexpr size_t kAll = SIZE_MAX;

std::optional<Condition> missingOf(const HostMessages& messages, size_t bytes) {
  return messages.missing && bytes > 0 ? messages.missing(bytes) : std::nullopt;
}

void learn(HostMessages& messages) {
  if (messages.learned) messages.learned();
  requireRoom(messages);
}

}  // namespace

void Pieces::add(const void* data, size_t bytes) {
  if (bytes == 0) return;
  auto* const start = static_cast<std::byte*>(const_cast<void*>(data));
  const size_t before = this->bytes();
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    const size_t begin = pieces_.size() == 1 ? 0 : pieces_[pieces_.size() - 2].end;
    if (last.data + (last.end - begin) == start) {
      last.end += bytes;
      return;
    }
  }
  pieces_.push_back({start, before + bytes});
}

template <class Visit>
void Pieces::visit(size_t offset, size_t bytes, Visit visit) const {
  if (bytes == 0) return;
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                [](size_t at, const Piece& p) { return at < p.end; });
  size_t begin = piece == pieces_.begin() ? 0 : std::prev(piece)->end;
  for (; bytes > 0; ++piece) {
    const size_t n = std::min(bytes, piece->end - offset);
    visit(piece->data + (offset - begin), n);
    offset += n;
    bytes -= n;
    begin = piece->end;
  }
}

void Pieces::read(size_t offset, size_t bytes, std::byte* to) const {
  visit(offset, bytes, [&to](const std::byte* from, size_t n) {
    std::memcpy(to, from, n);
    to += n;
  });
}

void Pieces::write(size_t offset, size_t bytes, const std::byte* from) const {
  visit(offset, bytes, [&from](std::byte* to, size_t n) {
    std::memcpy(to, from, n);
    from += n;
  });
}

void Pieces::copyFrom(const Pieces& from, size_t offset, size_t bytes) const {
  from.visit(offset, bytes, [&](const std::byte* data, size_t n) {
    write(offset, n, data);
    offset += n;
  });
}

Task exchange(HostMessages& messages, ShmContext* shm, bool first) {
  if (shm == nullptr) {
    messages.sizes[0] = messages.out[0].bytes();
    learn(messages);
    while (const auto missing = missingOf(messages, kAll)) co_await *missing;
    messages.in[0].copyFrom(messages.out[0], 0, messages.sizes[0]);
    co_return;
  }
  const int rank = shm->rank, size = shm->size;
  shm->beginRounds(1, Arena::kStepBytes);
  if (first) co_await shm->slotFree();
  co_await shm->roundFree(0);
  const bool fits = fitsStep(messages, rank);
  while (const auto missing = missingOf(messages, fits ? kAll : 0)) co_await *missing;
  announceMessages(messages, rank, fits, shm->buffer(0));
  if (first) {
    shm->publishSlot();
    co_await shm->allArrived();
    shm->checkAll();
  } else {
    shm->fillTo(0);
    co_await shm->allFilled(0);
  }

  uint64_t largest = 0;
  uint64_t inRounds = 0;  // bit per rank
  for (int r = 0; r < size; ++r) {
    Announcement announcement;
    std::memcpy(&announcement, shm->bufferOf(r, 0), sizeof announcement);
    messages.sizes[r] = announcement.bytes[rank];
    largest = std::max(largest, announcement.largest);
    if (announcement.largest > 0) inRounds |= uint64_t{1} << r;
  }
  const auto sendsInRounds = [inRounds](int r) { return (inRounds >> r & 1) != 0; };
  learn(messages);
  for (int r = 0; r < size; ++r) {
    if (r == rank || sendsInRounds(r)) continue;
    Announcement announcement;
    std::memcpy(&announcement, shm->bufferOf(r, 0), sizeof announcement);
    Checked offset = sizeof announcement;
    for (int before = 0; before < rank; ++before) {
      if (before != r) offset = offset + announcement.bytes[before];
    }
    const Checked end = offset + messages.sizes[r];
    end.atMost(Arena::kStepBytes, shm->arena.nameOf(r), "bytes at once");
    messages.in[r].write(0, messages.sizes[r],
                         shm->bufferOf(r, 0) + offset.atMost(Arena::kStepBytes, r, "bytes"));
    shm->countRead(shm->bufferOf(r, 0), messages.sizes[r]);
  }
  shm->endRounds();
  const size_t own = messages.sizes[rank];
  if (fits) messages.in[rank].copyFrom(messages.out[rank], 0, own);
  if (largest == 0) co_return;

  const size_t share = shareBytes(largest, size, 1);
  const uint64_t rounds = roundsFor(largest, share);
  shm->beginRounds(rounds, share * size);
  for (uint64_t k = 0; k < rounds; ++k) {
    if (!fits) {
      while (const auto missing = missingOf(messages, (k + 1) * share)) co_await *missing;
      co_await shm->roundFree(k);
      for (int r = 0; r < size; ++r) {
        if (r == rank) continue;
        const Piece piece(messages.out[r].bytes(), share, k);
        messages.out[r].read(piece.offset, piece.bytes, shm->buffer(k) + r * share);
      }
      const Piece piece(own, share, k);
      messages.in[rank].copyFrom(messages.out[rank], piece.offset, piece.bytes);
    }
    shm->fillTo(k);
    for (int step = 1; step < size; ++step) {
      const int peer = (rank + step) % size;
      if (!sendsInRounds(peer)) continue;
      co_await shm->filledBy(peer, k);
      const Piece piece(messages.sizes[peer], share, k);
      messages.in[peer].write(piece.offset, piece.bytes, shm->bufferOf(peer, k) + rank * share);
      shm->countRead(shm->bufferOf(peer, k), piece.bytes);
    }
    shm->drainTo(k);
  }
  shm->endRounds();
  if (fits || own <= rounds * share) co_return;
  while (const auto missing = missingOf(messages, kAll)) co_await *missing;
  messages.in[rank].copyFrom(messages.out[rank], rounds * share, own - rounds * share);
}

}  // namespace ctran
