#include "ctran/base/checked.h"
#include "ctran/base/error.h"
#include "ctran/collective/all_to_all/rows.h"

namespace ctran {

int RowPaths::size() const {
  size_t ranks = 0;
  for (int h = 0; h < map.hosts(); ++h) ranks += map.ranks(h).size();
  return static_cast<int>(ranks);
}

int RowPaths::delegate(int host, int of) const {
  const std::span<const int> ranks = map.ranks(host);
  return ranks[map.indexOf(of) % ranks.size()];
}

Task exchangeRows(RowPaths& paths, const Collective& c) {
  if (c.kind == CollectiveKind::AllToAllVCombine) return combineRows(paths, c);
  return c.rows->dedup ? dispatchRowsOnce(paths, c) : dispatchRows(paths, c);
}

/// Each rank tells each how many rows come, in total and of each chunk, and the rows follow: over
/// the network at once, through shared memory in a second step. What lies side by side in the input
/// leaves from there; all of it is received in place. Every row travels once to each rank that gets
/// it.
Task dispatchRows(RowPaths& paths, const Collective& c) {
  const RowExchange& x = *c.rows;
  const int rank = paths.rank(), size = paths.size();
  const RowLists lists(c, rank, size);
  const size_t words = 1 + (x.chunkRows != nullptr ? x.chunks : 0);
  const size_t noteBytes = words * sizeof(uint64_t);
  std::vector<std::vector<uint64_t>> notes(size, std::vector<uint64_t>(words)), told = notes;
  for (int r = 0; r < size; ++r) {
    notes[r][0] = lists.rows(r);
    lists.addChunks(r, notes[r].data() + 1);
  }

  std::vector<PackedPieces> packed;
  packed.reserve(size);
  std::vector<Arrival> counts(size), arrivals;
  std::vector<Dispatch> dispatches;
  for (int step = 1; step < size; ++step) {
    const int peer = (rank - step + size) % size;
    if (paths.isFar(peer))
      counts[peer] = paths.net->receive(peer, 0, wordBytes(told[peer]), noteBytes);
  }
  for (int step = 1; step < size; ++step) {
    const int peer = (rank + step) % size;
    if (!paths.isFar(peer)) continue;
    dispatches.push_back(paths.net->send(peer, 0, wordBytes(notes[peer]), noteBytes));
    packed.emplace_back(lists.piecesFor(peer, c.input));
    dispatches.push_back(paths.net->send(peer, 1, packed.back().data(), packed.back().bytes()));
  }

  HostMessages near(paths.places());
  for (const int r : paths.map.local()) {
    near.out[paths.placeOf(r)].add(notes[r].data(), noteBytes);
    near.in[paths.placeOf(r)].add(told[r].data(), noteBytes);
  }
  {
    Task task = exchange(near, paths.shm, true);
    co_await task;
  }
  for (Arrival& count : counts) co_await count;

  std::vector<uint64_t> rows;
  for (int r = 0; r < size; ++r) {
    rows.push_back(told[r][0]);
    Checked inChunks = 0;
    for (size_t k = 1; k < words; ++k) inChunks = inChunks + told[r][k];
    if (words > 1) inChunks.atMost(rows.back(), r, "rows in chunks", c.describe());
  }
  const RowLanding landing(c, rank, rows);
  for (int r = 0; r < size && x.receivedChunks != nullptr; ++r) {
    std::copy(told[r].begin() + 1, told[r].end(), x.receivedChunks + r * x.chunks);
  }
  for (int step = 1; step < size; ++step) {
    const int peer = (rank - step + size) % size;
    if (!paths.isFar(peer)) continue;
    arrivals.push_back(paths.net->receive(peer, 1, landing.from(peer), landing.bytes(peer)));
  }
  HostMessages data(paths.places());
  for (const int r : paths.map.local()) {
    data.out[paths.placeOf(r)] = lists.piecesFor(r, c.input);
    data.in[paths.placeOf(r)].add(landing.from(r), landing.bytes(r));
  }
  {
    Task task = exchange(data, paths.shm, false);
    co_await task;
  }
  for (Arrival& arrival : arrivals) co_await arrival;
  for (Dispatch& dispatch : dispatches) co_await dispatch;
}

}  // namespace ctran
