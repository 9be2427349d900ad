#include <optional>

#include "ctran/collective/all_to_all/host_share.h"

namespace ctran {
namespace {

/// The rows that a delegate fans out, as its neighbours' streams have them one after another: which
/// have to be here before the streams can go on.
class CarriedRows {
 public:
  CarriedRows(std::vector<CarriedShare>& carried, const std::vector<size_t>& ownBytes,
              size_t rowBytes)
      : carried_(carried), rowBytes_(rowBytes), needed_(carried.size()), here_(carried.size()) {
    for (const size_t bytes : ownBytes) streams_.push_back({0, 0, bytes});
  }

  /// See HostMessages::missing.
  std::optional<Condition> missing(size_t bytes) {
    for (size_t place = 0; place < streams_.size(); ++place) need(place, bytes);
    for (size_t i = 0; i < carried_.size(); ++i) {
      for (; here_[i] < needed_[i]; ++here_[i]) {
        Condition arrived = carried_[i].rows[here_[i]].condition();
        if (!arrived.holds()) return arrived;
        carried_[i].rows[here_[i]].check();
      }
    }
    return std::nullopt;
  }

 private:
  struct Stream {
    size_t share;  ///< the next row: of which share, the how manieth for this rank, where in it
    uint64_t row;
    size_t begin;
  };

  void need(size_t place, size_t bytes) {
    Stream& stream = streams_[place];
    while (stream.share < carried_.size() && stream.begin < bytes) {
      const CarriedShare& carried = carried_[stream.share];
      const uint64_t rows = carried.share.note[1 + place];
      const uint32_t* const at = carried.share.positionsOf(static_cast<int>(place));
      const size_t chunk = chunkRows(carried.share.note[0], rowBytes_);
      size_t& needed = needed_[stream.share];
      for (; stream.row < rows && stream.begin < bytes; ++stream.row, stream.begin += rowBytes_) {
        needed = std::max<size_t>(needed, at[stream.row] / chunk + 1);
      }
      if (stream.row < rows) return;
      stream.row = 0;
      ++stream.share;
    }
  }

  std::vector<CarriedShare>& carried_;
  const size_t rowBytes_;
  std::vector<Stream> streams_;        // to each neighbour
  std::vector<size_t> needed_, here_;  // chunks of each share
};

}  // namespace

/// MoE dispatch. What the ranks of another host need of a rank goes to one of them, its delegate
/// there, each row once, with the positions in it of the rows that each of them needs; the delegate
/// fans it out through shared memory, behind its own rows for its neighbours: rows cross in chunks,
/// and while some do the ones before are fanned out. To a host with
/// H rows listed for its ranks, U of them different, go U rows and 4 H bytes, instead of H rows.
/// Where hosts have one rank each, that still saves what is listed twice for a rank.
Task dispatchRowsOnce(RowPaths& paths, const Collective& c) {
  const int rank = paths.rank(), size = paths.size();
  const size_t rowBytes = c.blockBytes();
  const HostMap& map = paths.map;
  const RowLists lists(c, rank, size);
  std::vector<PackedPieces> packed;
  HostShares shares(paths, c, lists, c.rows->inputRows);
  shares.sendNotes();
  bool sends = map.hosts() > 1;
  for (uint32_t k = 0; sends; ++k) {
    sends = false;
    for (int step = 1; step < map.hosts(); ++step) {
      const int host = (map.host() + step) % map.hosts();
      const std::vector<int64_t>& rows = shares.sent()[host].rows;
      const size_t chunk = chunkRows(rows.size(), rowBytes);
      Pieces pieces;
      for (size_t i = k * chunk; i < std::min(rows.size(), (k + 1) * chunk); ++i) {
        pieces.add(c.input + rows[i] * rowBytes, rowBytes);
      }
      sends |= (k + 1) * chunk < rows.size();
      const PackedPieces& message = packed.emplace_back(pieces);
      shares.add(paths.net->send(shares.delegateAt(host), 2 + k, message.data(), message.bytes()));
    }
  }
  // What a rank of another host announces is taken if the ranks of this one have room for it: they
  // tell each other how much, while the notes are on their way.
  std::vector<uint64_t> room(size);
  for (int r = 0; r < size; ++r) room[r] = roomForRows(c, r);
  std::vector<std::vector<uint64_t>> rooms(paths.places(), std::vector<uint64_t>(size));
  const bool tellsRooms = map.hosts() > 1;
  if (tellsRooms) {
    HostMessages limits(paths.places());
    for (int place = 0; place < paths.places(); ++place) {
      limits.out[place].add(room.data(), size * sizeof(uint64_t));
      limits.in[place].add(rooms[place].data(), size * sizeof(uint64_t));
    }
    Task task = exchange(limits, paths.shm, true);
    co_await task;
  }
  for (CarriedShare& carried : shares.carried()) {
    co_await carried.note;
    for (const int r : map.local()) {
      const uint64_t rows = carried.share.note[1 + map.indexOf(r)];
      const uint64_t most = rooms[paths.placeOf(r)][carried.source];
      if (rows > most) throwNoRoom(c, carried.source, r, rows, most);
    }
    carried.receivePositions(c, *paths.net, 1);
    const uint64_t rows = carried.share.note[0];
    const size_t chunk = chunkRows(rows, rowBytes);
    carried.data.resize(carried.bytesOfRows(c, rowBytes));
    for (uint64_t i = 0; i < rows; i += chunk) {
      carried.rows.push_back(paths.net->receive(
          carried.source, static_cast<uint32_t>(2 + i / chunk), carried.data.data() + i * rowBytes,
          std::min<size_t>(chunk, rows - i) * rowBytes));
    }
  }

  // How many rows of each rank come to each neighbour through this one.
  std::vector<std::vector<uint64_t>> notes(paths.places(), std::vector<uint64_t>(size));
  std::vector<std::vector<uint64_t>> told = notes;
  HostMessages counts(paths.places());
  for (const int r : map.local()) {
    const int place = paths.placeOf(r);
    notes[place][rank] = lists.rows(r);
    for (const CarriedShare& carried : shares.carried()) {
      notes[place][carried.source] = carried.share.note[1 + map.indexOf(r)];
    }
    counts.out[place].add(notes[place].data(), size * sizeof(uint64_t));
    counts.in[place].add(told[place].data(), size * sizeof(uint64_t));
  }
  {
    Task task = exchange(counts, paths.shm, !tellsRooms);
    co_await task;
  }
  std::vector<uint64_t> expected(size);
  for (int r = 0; r < size; ++r) expected[r] = told[paths.placeOf(shares.carrierOf(r))][r];
  const RowLanding landing(c, rank, expected);

  for (CarriedShare& carried : shares.carried()) {
    co_await carried.positions;
    carried.checkPositions(c);
  }
  // Each stream: the carrier's own rows, and then what it carries, in the order of the sources.
  HostMessages data(paths.places());
  std::vector<size_t> ownBytes(paths.places());
  for (const int r : map.local()) {
    Pieces& out = data.out[paths.placeOf(r)];
    for (const int64_t row : lists.listed(r)) out.add(c.input + row * rowBytes, rowBytes);
    ownBytes[paths.placeOf(r)] = out.bytes();
    for (const CarriedShare& carried : shares.carried()) {
      const uint32_t* const at = carried.share.positionsOf(map.indexOf(r));
      for (uint64_t i = 0; i < carried.share.note[1 + map.indexOf(r)]; ++i) {
        out.add(carried.data.data() + at[i] * rowBytes, rowBytes);
      }
    }
    data.in[paths.placeOf(r)].add(landing.from(r), landing.bytes(r));
  }
  for (int source = 0; source < size; ++source) {
    if (!paths.isFar(source)) continue;
    Pieces& in = data.in[paths.placeOf(shares.carrierOf(source))];
    in.add(landing.from(source), landing.bytes(source));
  }
  CarriedRows rows(shares.carried(), ownBytes, rowBytes);
  data.missing = [&rows](size_t bytes) { return rows.missing(bytes); };
  {
    Task task = exchange(data, paths.shm, false);
    co_await task;
  }
  // What a peer sends although no rank needs it has to come, too, before the memory for it goes.
  for (CarriedShare& carried : shares.carried()) {
    for (Arrival& chunk : carried.rows) co_await chunk;
  }
  for (Dispatch& dispatch : shares.dispatches()) co_await dispatch;
}

}  // namespace ctran
