#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/collective/all_to_all/rows.h"

namespace ctran {

/// The rows that the ranks of one host get from one rank, each row once, and which rank needs which
/// of them. Rows that the ranks need first come first.
struct HostShare {
  /// [0] number of rows; [1 + i] how many of them, with repetition, the i-th rank of the host
  /// needs.
  std::vector<uint64_t> note;
  std::vector<uint32_t> positions;  ///< indices of the rows that the ranks need, rank after rank
  std::vector<int64_t> rows;        ///< only at the sender: where the rows are

  HostShare() = default;
  /// Makes the share at the sender. `seen` has kUnseen for every row, and has so again at the end.
  HostShare(const RowLists& lists, std::span<const int> ranks, std::vector<uint32_t>& seen);
  static constexpr uint32_t kUnseen = UINT32_MAX;

  size_t positionBytes() const { return positions.size() * sizeof(uint32_t); }

  /// Returns the positions of the i-th rank.
  const uint32_t* positionsOf(int index) const {
    const uint32_t* at = positions.data();
    for (int i = 0; i < index; ++i) at += note[1 + i];
    return at;
  }
};

/// Returns how many rows of a share are sent as one message: some hundred kilobytes, so that rows
/// are passed on while others are still on their way.
inline size_t chunkRows(uint64_t rows, size_t rowBytes) {
  constexpr size_t kBytes = 256 << 10, kMost = 1024;
  return std::max<size_t>({1, kBytes / std::max<size_t>(rowBytes, 1), (rows + kMost - 1) / kMost});
}

/// A HostShare that a rank of another host sends to this rank.
struct CarriedShare {
  CarriedShare(int source, size_t ranks) : source(source) { share.note.resize(1 + ranks); }

  int source;
  HostShare share;
  std::vector<std::byte> data;  ///< the rows
  Arrival note, positions;
  std::vector<Arrival> rows;  ///< one for each chunk of rows

  /// Called when the note is here, and each rank of this host is known to take as many rows as it
  /// says.
  void receivePositions(const Collective& c, NetContext& net, uint32_t buffer) {
    Checked listed = 0;
    for (size_t i = 1; i < share.note.size(); ++i) listed = listed + share.note[i];
    const uint64_t count =
        listed.atMost(PTRDIFF_MAX / sizeof(uint32_t), source, "rows of a host", c.describe());
    Checked(share.note[0]).atMost(count, source, "different rows", c.describe());
    share.positions.resize(count);
    positions = net.receive(source, buffer, reinterpret_cast<std::byte*>(share.positions.data()),
                            share.positionBytes());
  }
  /// Returns the bytes of all rows, with `each` bytes for a row.
  size_t bytesOfRows(const Collective& c, size_t each) const {
    return (Checked(share.note[0]) * each)
        .atMost(PTRDIFF_MAX, source, "bytes of rows", c.describe());
  }
  /// Called when the positions are here. Checks them, because data from the network is not trusted
  /// to index memory.
  void checkPositions(const Collective& c) const {
    for (const uint32_t position : share.positions) {
      if (position < share.note[0]) continue;
      throw Error(ErrorKind::Mismatch,
                  "rank " + std::to_string(source) + " sends a position beyond its rows", {source},
                  c.describe());
    }
  }
};

/// The shares that a rank sends, and those that it takes for its host.
class HostShares {
 public:
  HostShares(RowPaths& paths, const Collective& c, const RowLists& lists, size_t rowsKnown);

  /// Sends notes and positions to the other hosts (buffers 0 and 1), and binds memory to theirs.
  void sendNotes();
  const std::vector<HostShare>& sent() const { return sent_; }  ///< per host; empty for this one
  std::vector<CarriedShare>& carried() { return carried_; }     ///< in the order of the sources

  /// Returns the rank of this host that takes what comes from a rank; the rank itself, if it is of
  /// this host.
  int carrierOf(int source) const {
    return paths_.isFar(source) ? paths_.delegate(paths_.map.host(), source) : source;
  }
  /// Returns the rank of that host which takes this rank's share.
  int delegateAt(int host) const { return paths_.delegate(host, paths_.rank()); }

  /// Adds a message that has to be awaited in the end.
  void add(Dispatch dispatch) { dispatches_.push_back(std::move(dispatch)); }
  std::vector<Dispatch>& dispatches() { return dispatches_; }

 private:
  RowPaths& paths_;
  std::vector<HostShare> sent_;
  std::vector<CarriedShare> carried_;
  std::vector<Dispatch> dispatches_;  // send the memory of the members above
};

}  // namespace ctran
