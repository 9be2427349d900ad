#include "ctran/collective/all_to_all/row_lists.h"

#include "ctran/base/error.h"

namespace ctran {
namespace {

/// [chunks + 1] where the chunks begin.
std::vector<uint64_t> chunkBegins(const Collective& c, int rank) {
  const RowExchange& x = *c.rows;
  std::vector<uint64_t> begins{0};
  begins.reserve(x.chunks + 1);
  for (size_t k = 0; k < x.chunks; ++k) {
    const int64_t rows = x.chunkRows[k];
    if (rows < 0 || static_cast<uint64_t>(rows) > x.inputRows - begins.back()) {
      rejectRows(c, rank,
                 "chunk " + std::to_string(k) + " has " + std::to_string(rows) + " rows, where " +
                     std::to_string(x.inputRows - begins.back()) + " of the input's " +
                     std::to_string(x.inputRows) + " are left");
    }
    begins.push_back(begins.back() + static_cast<uint64_t>(rows));
  }
  return begins;
}

}  // namespace

void rejectRows(const Collective& c, int rank, const std::string& what) {
  throw Error(ErrorKind::InvalidArgument,
              std::string(nameOf(c.kind)) + " on rank " + std::to_string(rank) + ": " + what,
              {rank}, c.describe());
}

RowLists::RowLists(const Collective& c, int rank, int size) : rowBytes_(c.blockBytes()) {
  const RowExchange& x = *c.rows;
  const bool returns = c.kind == CollectiveKind::AllToAllVCombine;
  if (x.chunkRows != nullptr) chunkBegin_ = chunkBegins(c, rank);
  // What can be listed.
  const size_t known = returns ? x.outputRows : x.chunkRows != nullptr ? x.chunks : x.inputRows;
  const size_t most = x.sendIndices != nullptr ? x.indices : known;
  first_.push_back(0);
  for (int r = 0; r < size; ++r) {
    const int64_t count = x.sendCounts[r];
    const auto left = static_cast<int64_t>(most) - first_.back();
    if (count < 0 || count > left) {
      rejectRows(c, rank,
                 "the count for rank " + std::to_string(r) + " is " + std::to_string(count) +
                     ", where " + std::to_string(left) + " of " + std::to_string(most) +
                     " are left");
    }
    first_.push_back(first_.back() + count);
  }
  indices_.resize(first_.back());
  for (size_t i = 0; i < indices_.size(); ++i) {
    const int64_t index = x.sendIndices != nullptr ? x.sendIndices[i] : static_cast<int64_t>(i);
    if (index < 0 || static_cast<uint64_t>(index) >= known) {
      rejectRows(
          c, rank,
          "index " + std::to_string(index) + " is not in [0, " + std::to_string(known) + ")");
    }
    indices_[i] = index;
  }
  for (int r = 0; r < size; ++r) {
    uint64_t rows = 0;
    for (const int64_t index : listed(r)) {
      rows += chunkBegin_.empty() ? 1 : chunkBegin_[index + 1] - chunkBegin_[index];
    }
    rows_.push_back(rows);
  }
}

Pieces RowLists::piecesFor(int peer, const std::byte* data) const {
  Pieces pieces;
  for (const int64_t index : listed(peer)) {
    const uint64_t row = chunkBegin_.empty() ? index : chunkBegin_[index];
    const uint64_t rows = chunkBegin_.empty() ? 1 : chunkBegin_[index + 1] - row;
    pieces.add(data + row * rowBytes_, rows * rowBytes_);
  }
  return pieces;
}

void RowLists::addChunks(int peer, uint64_t* rows) const {
  if (chunkBegin_.empty()) return;
  for (const int64_t index : listed(peer)) {
    rows[index] += chunkBegin_[index + 1] - chunkBegin_[index];
  }
}

std::vector<uint64_t> receivedRows(const Collective& c, int rank, int size) {
  const RowExchange& x = *c.rows;
  std::vector<uint64_t> rows;
  uint64_t sum = 0;
  for (int r = 0; r < size; ++r) {
    const int64_t count = x.received[r];
    if (count < 0 || static_cast<uint64_t>(count) > x.inputRows - sum) {
      rejectRows(c, rank,
                 "the count of rows from rank " + std::to_string(r) + " is " +
                     std::to_string(count) + ", where " + std::to_string(x.inputRows - sum) +
                     " of the input's " + std::to_string(x.inputRows) + " are left");
    }
    sum += static_cast<uint64_t>(count);
    rows.push_back(static_cast<uint64_t>(count));
  }
  return rows;
}

uint64_t roomForRows(const Collective& c, int source) {
  // The most rows without bytes; a list of outputs has room for any number of them.
  constexpr uint64_t kEmptyRows = 1 << 20;
  if (c.outputs.empty()) return c.rows->outputRows;
  return c.count == 0 ? kEmptyRows : c.outputs[source].count / c.count;
}

void throwNoRoom(const Collective& c, int source, int rank, uint64_t rows, uint64_t room) {
  throw Error(
      ErrorKind::Mismatch,
      std::string(nameOf(c.kind)) + ": rank " + std::to_string(source) + " sends " +
          std::to_string(rows) + " rows to rank " + std::to_string(rank) + ", which has room for " +
          std::to_string(room) +
          (c.outputs.empty() ? " more of " + std::to_string(c.rows->outputRows) : " more from it"),
      {source, rank}, c.describe(), "give the output the size of all that the others may send");
}

RowLanding::RowLanding(const Collective& c, int rank, const std::vector<uint64_t>& rows) {
  const RowExchange& x = *c.rows;
  const size_t rowBytes = c.blockBytes();
  const auto sends = [&](size_t r) {
    return std::string(nameOf(c.kind)) + ": rank " + std::to_string(r) + " sends " +
           std::to_string(rows[r]) + " rows to rank " + std::to_string(rank);
  };
  uint64_t sum = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (x.expected != nullptr && static_cast<uint64_t>(x.expected[r]) != rows[r]) {
      throw Error(ErrorKind::Mismatch,
                  sends(r) + ", which expects " + std::to_string(x.expected[r]),
                  {static_cast<int>(r), rank}, c.describe(),
                  "what rank i sends rank j, rank j has to expect from rank i");
    }
    const bool listed = !c.outputs.empty();
    const int source = static_cast<int>(r);
    const uint64_t room = roomForRows(c, source) - (listed ? 0 : sum);
    if (rows[r] > room) throwNoRoom(c, source, rank, rows[r], room);
    at_.push_back(listed ? c.outputs[r].data : c.output + sum * rowBytes);
    bytes_.push_back(rows[r] * rowBytes);
    sum += rows[r];
  }
  for (size_t r = 0; r < rows.size() && x.received != nullptr; ++r) {
    x.received[r] = static_cast<int64_t>(rows[r]);
  }
}

}  // namespace ctran
