#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ctran/collective/collective.h"
#include "ctran/collective/parcels.h"

namespace ctran {

/// The numbers of a row exchange that one rank passes, checked and copied: which rows go to, or
/// come back from, which rank.
class RowLists {
 public:
  /// Throws Error(InvalidArgument) that names the rank, when they make no sense.
  RowLists(const Collective& c, int rank, int size);

  /// How many rows are listed for a rank.
  uint64_t rows(int peer) const { return rows_[peer]; }
  /// What is listed for it: rows, or chunks.
  std::span<const int64_t> listed(int peer) const {
    return {indices_.data() + first_[peer], static_cast<size_t>(first_[peer + 1] - first_[peer])};
  }
  /// Its rows, in `data`.
  Pieces piecesFor(int peer, const std::byte* data) const;
  /// Adds to [chunks] how many rows of each chunk a rank gets.
  void addChunks(int peer, uint64_t* rows) const;

 private:
  size_t rowBytes_;
  std::vector<uint64_t> rows_;
  std::vector<int64_t> first_;  // [size + 1] in indices_
  std::vector<int64_t> indices_;
  std::vector<uint64_t> chunkBegin_;  // [chunks + 1] rows; empty: chunks are rows
};

/// "all_to_all_v_dynamic: rank 3's `what`".
[[noreturn]] void rejectRows(const Collective& c, int rank, const std::string& what);

/// [size] rows that came, or come, from each rank: checked, where they are the caller's.
std::vector<uint64_t> receivedRows(const Collective& c, int rank, int size);

/// The most rows that this rank takes from another.
uint64_t roomForRows(const Collective& c, int source);

/// Error(Mismatch) of a rank that sends another more rows than that has room for.
[[noreturn]] void throwNoRoom(const Collective& c, int source, int rank, uint64_t rows,
                              uint64_t room);

/// Where what is received goes.
class RowLanding {
 public:
  /// `rows[r]` from rank r. Throws Error(Mismatch) that names the sender that does not fit, or that
  /// sends another number than expected. Tells the caller how many they are.
  RowLanding(const Collective& c, int rank, const std::vector<uint64_t>& rows);

  std::byte* from(int peer) const { return at_[peer]; }
  size_t bytes(int peer) const { return bytes_[peer]; }

 private:
  std::vector<std::byte*> at_;
  std::vector<size_t> bytes_;
};

}  // namespace ctran
