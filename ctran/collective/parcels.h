#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ctran/collective/shm_context.h"
#include "ctran/collective/task.h"

namespace ctran {

/// Pieces of memory that are read, or written, as one stream of bytes.
class Pieces {
 public:
  /// Behind what there is; side by side with it they become one piece.
  void add(const void* data, size_t bytes);

  size_t bytes() const { return pieces_.empty() ? 0 : pieces_.back().end; }
  /// Where it all lies, if it is one piece or nothing.
  std::byte* whole() const { return pieces_.size() == 1 ? pieces_.front().data : nullptr; }
  bool isWhole() const { return pieces_.size() <= 1; }

  /// The part [offset, offset + bytes).
  void read(size_t offset, size_t bytes, std::byte* to) const;
  void write(size_t offset, size_t bytes, const std::byte* from) const;
  /// That part of `from`, to the same place here.
  void copyFrom(const Pieces& from, size_t offset, size_t bytes) const;

 private:
  struct Piece {
    std::byte* data;
    size_t end;  ///< in the stream
  };
  template <class Visit>
  void visit(size_t offset, size_t bytes, Visit visit) const;

  std::vector<Piece> pieces_;
};

/// A stream of bytes from each rank of a host to each, of lengths that only the senders know.
struct Parcels {
  explicit Parcels(int ranks) : out(ranks), in(ranks), sizes(ranks) {}

  FrameMemory frame;
  std::vector<Pieces> out, in;
  std::vector<uint64_t> sizes;  ///< bytes for this rank from each
  /// Called when these are known: sets `in`, as many bytes from each; or throws.
  std::function<void()> learned;
  /// For what `out` refers to before it is there: something that has to hold before the first so
  /// many bytes of each stream are read, until there is nothing more. May throw.
  std::function<std::optional<Condition>(size_t bytes)> missing;
};

/// Moves them. `shm` may be null for a single rank. `first`: nothing else was exchanged in this
/// step of a collective before. Outputs must not overlap inputs.
///
/// One round tells the sizes and, if all that a rank sends fits, carries it; what is larger follows
/// in rounds, as many as the largest stream of any rank takes. Every byte is written and read once,
/// as soon as it is there.
Task exchange(Parcels& parcels, ShmContext* shm, bool first);

}  // namespace ctran
