#include "ctran/collective/all_to_all/host_share.h"

namespace ctran {

/// MoE dispatch. What the ranks of another host need of a rank goes to one of them, its delegate
/// there, each row once, with the positions in it of the rows that each of them needs; the delegate
/// fans it out through shared memory, together with its own rows for its neighbours. To a host with
/// H rows listed for its ranks, U of them different, go U rows and 4 H bytes, instead of H rows.
/// Where hosts have one rank each, that still saves what is listed twice for a rank.
Task dispatchRowsOnce(RowPaths& paths, const Collective& c) {
  const int rank = paths.rank(), size = paths.size();
  const size_t rowBytes = c.blockBytes();
  const HostMap& map = paths.map;
  const RowLists lists(c, rank, size);
  std::vector<PackedPieces> packed;
  packed.reserve(map.hosts());
  HostShares shares(paths, c, lists, c.rows->inputRows);
  shares.sendNotes();
  for (int step = 1; step < map.hosts(); ++step) {
    const int host = (map.host() + step) % map.hosts();
    Pieces rows;
    for (const int64_t row : shares.sent()[host].rows) rows.add(c.input + row * rowBytes, rowBytes);
    packed.emplace_back(rows);
    shares.add(
        paths.tcp->send(shares.delegateAt(host), 2, packed.back().data(), packed.back().bytes()));
  }
  for (CarriedShare& carried : shares.carried()) {
    co_await carried.note;
    carried.receivePositions(*paths.tcp, 1);
    carried.data.resize(carried.share.note[0] * rowBytes);
    carried.rows = paths.tcp->receive(carried.source, 2, carried.data.data(), carried.data.size());
  }

  // How many rows of each rank come to each neighbour through this one.
  std::vector<std::vector<uint64_t>> notes(paths.places(), std::vector<uint64_t>(size));
  std::vector<std::vector<uint64_t>> told = notes;
  Parcels counts(paths.places());
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
    Task task = exchange(counts, paths.shm, true);
    co_await task;
  }
  std::vector<uint64_t> rows(size);
  for (int r = 0; r < size; ++r) rows[r] = told[paths.placeOf(shares.carrierOf(r))][r];
  const RowLanding landing(c, rank, rows);

  for (CarriedShare& carried : shares.carried()) {
    co_await carried.positions;
    co_await carried.rows;
    carried.checkPositions(c);
  }
  Parcels data(paths.places());
  for (const int r : map.local()) {
    Pieces& out = data.out[paths.placeOf(r)];
    auto carried = shares.carried().begin();
    const auto end = shares.carried().end();
    for (int source = 0; source < size; ++source) {
      if (source == rank) {
        for (const int64_t row : lists.listed(r)) out.add(c.input + row * rowBytes, rowBytes);
      } else if (carried != end && carried->source == source) {
        const uint32_t* const at = carried->share.positionsOf(map.indexOf(r));
        for (uint64_t i = 0; i < carried->share.note[1 + map.indexOf(r)]; ++i) {
          out.add(carried->data.data() + at[i] * rowBytes, rowBytes);
        }
        ++carried;
      }
    }
  }
  for (int source = 0; source < size; ++source) {
    Pieces& in = data.in[paths.placeOf(shares.carrierOf(source))];
    in.add(landing.from(source), landing.bytes(source));
  }
  {
    Task task = exchange(data, paths.shm, false);
    co_await task;
  }
  for (Dispatch& dispatch : shares.dispatches()) co_await dispatch;
}

}  // namespace ctran
