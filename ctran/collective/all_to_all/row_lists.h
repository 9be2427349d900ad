#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/collective/host_messages.h"

namespace ctran {

/// The numbers of a row exchange that one rank passes, checked and copied: which rows go to, or
/// come back from, which rank.
class RowLists {
 public:
  /// Throws Error(InvalidArgument), which names the rank, if they are wrong.
  RowLists(const Collective& c, int rank, int size);

  /// Returns how many rows are listed for a rank.
  uint64_t rows(int peer) const { return rows_[peer]; }
  /// Returns what is listed for a rank: rows, or chunks.
  std::span<const int64_t> listed(int peer) const {
    return {indices_.data() + first_[peer], static_cast<size_t>(first_[peer + 1] - first_[peer])};
  }
  /// Returns the rows of a rank in `data`.
  Pieces piecesFor(int peer, const std::byte* data) const;
  /// Adds to `rows`, of [chunks], how many rows of each chunk a rank gets.
  void addChunks(int peer, uint64_t* rows) const;

 private:
  size_t rowBytes_;
  std::vector<uint64_t> rows_;
  std::vector<int64_t> first_;  // [size + 1] in indices_
  std::vector<int64_t> indices_;
  std::vector<uint64_t> chunkBegin_;  // [chunks + 1] rows; empty: chunks are rows
};

/// Throws the error "all_to_all_v_dynamic: rank 3's `what`".
[[noreturn]] void rejectRows(const Collective& c, int rank, const std::string& what);

/// Returns [size] rows that came, or come, from each rank; checked if they are the caller's.
std::vector<uint64_t> receivedRows(const Collective& c, int rank, int size);

/// Returns the most rows that this rank takes from another.
uint64_t roomForRows(const Collective& c, int source);

/// Throws Error(Mismatch) for a rank that sends another more rows than that one has room for.
[[noreturn]] void throwNoRoom(const Collective& c, int source, int rank, uint64_t rows,
                              uint64_t room);

/// Where received rows go.
class RowLanding {
 public:
  /// `rows[r]` come from rank r. Throws Error(Mismatch), which names a sender whose rows do not
  /// fit, or that sends another number than expected. Writes the numbers where the caller has asked
  /// for them.
  RowLanding(const Collective& c, int rank, const std::vector<uint64_t>& rows);

  std::byte* from(int peer) const { return at_[peer]; }
  size_t bytes(int peer) const { return bytes_[peer]; }

 private:
  std::vector<std::byte*> at_;
  std::vector<size_t> bytes_;
};

}  // namespace ctran
