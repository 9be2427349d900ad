#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ctran/collective/shm_context.h"
#include "ctran/collective/task.h"

namespace ctran {

/// Pieces of memory that are read or written as one stream of bytes.
class Pieces {
 public:
  /// Appends a piece. It is merged with the last one if they lie side by side.
  void add(const void* data, size_t bytes);

  size_t bytes() const { return pieces_.empty() ? 0 : pieces_.back().end; }
  /// Returns the memory if it is a single piece; null otherwise.
  std::byte* whole() const { return pieces_.size() == 1 ? pieces_.front().data : nullptr; }
  bool isWhole() const { return pieces_.size() <= 1; }

  /// Read and write the part [offset, offset + bytes).
  void read(size_t offset, size_t bytes, std::byte* to) const;
  void write(size_t offset, size_t bytes, const std::byte* from) const;
  /// Copies that part of `from` to the same place here.
  void copyFrom(const Pieces& from, size_t offset, size_t bytes) const;

 private:
  struct Piece {
    std::byte* data;
    size_t end;  ///< its end in the stream
  };
  template <class Visit>
  void visit(size_t offset, size_t bytes, Visit visit) const;

  std::vector<Piece> pieces_;
};

/// Streams of bytes from each rank of a host to each, of lengths that only the senders know.
struct HostMessages {
  explicit HostMessages(int ranks) : out(ranks), in(ranks), sizes(ranks) {}

  FrameMemory frame;
  std::vector<Pieces> out, in;
  std::vector<uint64_t> sizes;  ///< bytes that each rank has for this one
  /// Is called when `sizes` is known. Sets `in` to take as many bytes from each rank, or throws.
  std::function<void()> learned;
  /// Allows `out` to refer to data that does not exist yet. Returns a condition that has to hold
  /// before the first `bytes` bytes of each stream are read, until there is nothing more to wait
  /// for. May throw.
  std::function<std::optional<Condition>(size_t bytes)> missing;
};

/// Moves the streams. `shm` may be null for a single rank. `first`: nothing else was exchanged
/// before in this step of a collective. Outputs must not overlap inputs.
///
/// One round carries the sizes and, if all that a rank sends fits, the data. Larger data follows in
/// as many rounds as the largest stream of any rank takes. Every byte is written and read once, as
/// soon as it is there.
Task exchange(HostMessages& messages, ShmContext* shm, bool first);

}  // namespace ctran
