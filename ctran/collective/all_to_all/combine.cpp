#include "ctran/base/error.h"
#include "ctran/collective/all_to_all/host_share.h"
#include "ctran/reduce/weighted_sum.h"

namespace ctran {
namespace {

/// The rows of one rank that a neighbour brings back, with their weights.
struct Returned {
  std::vector<float> weights;
  std::vector<std::byte> rows;

  Returned(uint64_t count, size_t rowBytes, bool weighted)
      : weights(weighted ? count : 0), rows(count * rowBytes) {}
  void addTo(Pieces& in) {
    in.add(weights.data(), weights.size() * sizeof(float));
    in.add(rows.data(), rows.size());
  }
  /// The i-th, times its weight.
  void addRow(const WeightedSum& sum, std::byte* partial, size_t i, size_t elements) const {
    const size_t bytes = elements * sizeOf(sum.type);
    sum.add(partial, rows.data() + i * bytes, elements, weights.empty() ? 1.0f : weights[i]);
  }
};

void requireCount(const Collective& c, int holder, int owner, uint64_t listed, uint64_t held) {
  if (listed == held) return;
  throw Error(ErrorKind::Mismatch,
              std::string(nameOf(c.kind)) + ": rank " + std::to_string(holder) + " returns " +
                  std::to_string(held) + " rows to rank " + std::to_string(owner) +
                  ", which lists " + std::to_string(listed) + " for it",
              {holder, owner}, c.describe(),
              "pass the counts and indices of the dispatch, and as many rows as came");
}

}  // namespace

/// The reverse of dispatchRowsOnce. Each owner tells its delegates again which rows its neighbours
/// there hold. Neighbours bring what they hold to the owner, if it is on this host, or to its
/// delegate, which sums what belongs to one row and sends that sum: to an owner on another host go
/// U sums, of 4 bytes an element (float64: 8), instead of H rows. The order of the sum: hosts in
/// order, and inside each the ranks in order.
Task combineRows(RowPaths& paths, const Collective& c) {
  const RowExchange& x = *c.rows;
  const int rank = paths.rank(), size = paths.size();
  const size_t rowBytes = c.blockBytes();
  const HostMap& map = paths.map;
  const WeightedSum sum(c.type);
  const size_t sumBytes = c.count * sum.partialBytes();
  const RowLists lists(c, rank, size);
  const std::vector<uint64_t> held = receivedRows(c, rank, size);

  std::vector<std::vector<std::byte>> partials(map.hosts());  // for this rank, of each host
  std::vector<std::vector<std::byte>> sums;                   // for others, of this host
  std::vector<Arrival> arrivals(map.hosts());
  HostShares shares(paths, c, lists, x.outputRows);
  shares.sendNotes();
  for (int step = 1; step < map.hosts(); ++step) {
    const int host = (map.host() - step + map.hosts()) % map.hosts();
    partials[host].resize(shares.sent()[host].rows.size() * sumBytes);
    arrivals[host] = paths.net->receive(shares.delegateAt(host), 2, partials[host].data(),
                                        partials[host].size());
  }

  // How many rows of each owner come from each neighbour to this rank.
  std::vector<std::vector<uint64_t>> notes(paths.places(), std::vector<uint64_t>(size));
  std::vector<std::vector<uint64_t>> told = notes;
  HostMessages counts(paths.places());
  for (int owner = 0; owner < size; ++owner) {
    notes[paths.placeOf(shares.carrierOf(owner))][owner] = held[owner];
  }
  for (int place = 0; place < paths.places(); ++place) {
    counts.out[place].add(notes[place].data(), size * sizeof(uint64_t));
    counts.in[place].add(told[place].data(), size * sizeof(uint64_t));
  }
  {
    Task task = exchange(counts, paths.shm, true);
    co_await task;
  }
  for (CarriedShare& carried : shares.carried()) {
    co_await carried.note;
    for (const int r : map.local()) {
      requireCount(c, r, carried.source, carried.share.note[1 + map.indexOf(r)],
                   told[paths.placeOf(r)][carried.source]);
    }
    carried.receivePositions(c, *paths.net, 1);
  }
  for (const int r : map.local()) {
    requireCount(c, r, rank, lists.rows(r), told[paths.placeOf(r)][rank]);
  }

  HostMessages data(paths.places());
  {
    const std::byte* row = c.input;
    const float* weight = x.weights;
    for (int owner = 0; owner < size; ++owner) {
      Pieces& out = data.out[paths.placeOf(shares.carrierOf(owner))];
      if (weight != nullptr) out.add(weight, held[owner] * sizeof(float));
      out.add(row, held[owner] * rowBytes);
      row += held[owner] * rowBytes;
      if (weight != nullptr) weight += held[owner];
    }
  }
  std::vector<std::vector<Returned>> returned(paths.places());  // per place, as owners follow
  for (const int r : map.local()) {
    const int place = paths.placeOf(r);
    auto& from = returned[place];
    from.reserve(1 + shares.carried().size());
    for (int owner = 0; owner < size; ++owner) {
      if (shares.carrierOf(owner) != rank) continue;
      from.emplace_back(told[place][owner], rowBytes, x.weights != nullptr);
      from.back().addTo(data.in[place]);
    }
  }
  {
    Task task = exchange(data, paths.shm, false);
    co_await task;
  }

  // What this rank carries goes back to its owners. `at` counts them as they follow in `returned`.
  size_t own = 0;
  size_t at = 0;
  auto carried = shares.carried().begin();
  for (int owner = 0; owner < size; ++owner) {
    if (shares.carrierOf(owner) != rank) continue;
    if (owner == rank) {
      own = at++;
      continue;
    }
    co_await carried->positions;
    carried->checkPositions(c);
    sums.emplace_back(carried->bytesOfRows(c, sumBytes));
    for (const int r : map.local()) {
      const uint32_t* const position = carried->share.positionsOf(map.indexOf(r));
      const Returned& rows = returned[paths.placeOf(r)][at];
      for (uint64_t i = 0; i < carried->share.note[1 + map.indexOf(r)]; ++i) {
        rows.addRow(sum, sums.back().data() + position[i] * sumBytes, i, c.count);
      }
    }
    shares.add(paths.net->send(owner, 2, sums.back().data(), sums.back().size()));
    ++carried;
    ++at;
  }

  std::vector<std::byte> total(x.outputRows * sumBytes);
  for (int host = 0; host < map.hosts(); ++host) {
    if (host != map.host()) {
      co_await arrivals[host];
      const std::byte* partial = partials[host].data();
      for (const int64_t row : shares.sent()[host].rows) {
        sum.addPartial(total.data() + row * sumBytes, partial, c.count);
        partial += sumBytes;
      }
      continue;
    }
    for (const int r : map.local()) {
      const Returned& rows = returned[paths.placeOf(r)][own];
      size_t i = 0;
      for (const int64_t row : lists.listed(r)) {
        rows.addRow(sum, total.data() + row * sumBytes, i++, c.count);
      }
    }
  }
  sum.round(c.output, total.data(), x.outputRows * c.count);
  for (Dispatch& dispatch : shares.dispatches()) co_await dispatch;
}

}  // namespace ctran
