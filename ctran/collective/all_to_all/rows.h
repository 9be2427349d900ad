#pragma once

#include "ctran/collective/all_to_all/row_lists.h"
#include "ctran/collective/net_context.h"
#include "ctran/topology/host_map.h"

namespace ctran {

/// What a row exchange moves data through: shared memory inside a host, the network between hosts.
/// One algorithm serves every mixture.
struct RowPaths {
  RowPaths(const HostMap& map, NetContext* net, ShmContext* shm) : map(map), net(net), shm(shm) {}

  const HostMap& map;
  NetContext* const net;  ///< all ranks; null if there is one host
  ShmContext* const shm;  ///< the ranks of this host, in a step; null if no ranks share a host
  FrameMemory frame;

  int rank() const { return map.local()[map.index()]; }
  int size() const;
  /// Returns the place of a rank of this host in shared memory.
  int placeOf(int rank) const { return shm == nullptr ? 0 : map.indexOf(rank); }
  int places() const { return shm == nullptr ? 1 : static_cast<int>(map.local().size()); }
  bool isFar(int rank) const { return map.hostOf(rank) != map.host(); }
  /// Returns the rank of a host that takes what comes there from, or goes back to, a rank of
  /// another host.
  int delegate(int host, int of) const;
};

/// Starts all_to_all_v_dynamic or all_to_all_v_combine.
Task exchangeRows(RowPaths& paths, const Collective& c);

Task dispatchRows(RowPaths& paths, const Collective& c);
Task dispatchRowsOnce(RowPaths& paths, const Collective& c);
Task combineRows(RowPaths& paths, const Collective& c);

/// Return a list of words as bytes to be sent.
inline const std::byte* wordBytes(const std::vector<uint64_t>& words) {
  return reinterpret_cast<const std::byte*>(words.data());
}
inline std::byte* wordBytes(std::vector<uint64_t>& words) {
  return reinterpret_cast<std::byte*>(words.data());
}

/// Pieces as one message: their own memory if they are in one place, a copy otherwise. The object
/// has to live until the message has ended.
class PackedPieces {
 public:
  explicit PackedPieces(const Pieces& pieces) : bytes_(pieces.bytes()) {
    if (pieces.isWhole()) {
      data_ = pieces.whole();
    } else {
      copy_.resize(bytes_);
      pieces.read(0, bytes_, copy_.data());
      data_ = copy_.data();
    }
  }
  PackedPieces(PackedPieces&&) = default;  // the copy stays where it is
  const std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<std::byte> copy_;
  const std::byte* data_;
  size_t bytes_;
};

}  // namespace ctran
