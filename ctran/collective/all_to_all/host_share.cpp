#include "ctran/collective/all_to_all/host_share.h"

namespace ctran {

HostShare::HostShare(const RowLists& lists, std::span<const int> ranks,
                     std::vector<uint32_t>& seen) {
  note.push_back(0);
  std::vector<size_t> first;  // position of each rank
  size_t total = 0, longest = 0;
  for (const int r : ranks) {
    const size_t count = lists.listed(r).size();
    note.push_back(count);
    first.push_back(total);
    total += count;
    longest = std::max(longest, count);
  }
  positions.resize(total);
  for (size_t i = 0; i < longest; ++i) {  // the ranks in turns
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (i >= note[1 + r]) continue;
      const int64_t row = lists.listed(ranks[r])[i];
      if (seen[row] == kUnseen) {
        seen[row] = static_cast<uint32_t>(rows.size());
        rows.push_back(row);
      }
      positions[first[r] + i] = seen[row];
    }
  }
  for (const int64_t row : rows) seen[row] = kUnseen;
  note[0] = rows.size();
}

HostShares::HostShares(RowPaths& paths, const Collective& c, const RowLists& lists,
                       size_t rowsKnown)
    : paths_(paths), sent_(paths.map.hosts()) {
  const HostMap& map = paths.map;
  if (map.hosts() > 1 && rowsKnown >= HostShare::kUnseen) {
    rejectRows(c, paths.rank(), "between hosts, tensors have less than 4294967295 rows");
  }
  std::vector<uint32_t> seen(map.hosts() > 1 ? rowsKnown : 0, HostShare::kUnseen);
  for (int h = 0; h < map.hosts(); ++h) {
    if (h != map.host()) sent_[h] = HostShare(lists, map.ranks(h), seen);
  }
  for (int r = 0; r < paths.size(); ++r) {
    if (paths.isFar(r) && carrierOf(r) == paths.rank()) {
      carried_.emplace_back(r, map.local().size());
    }
  }
}

void HostShares::sendNotes() {
  NetContext* const net = paths_.net;
  for (CarriedShare& share : carried_) {
    auto& note = share.share.note;
    share.note = net->receive(share.source, 0, wordBytes(note), note.size() * sizeof note[0]);
  }
  const HostMap& map = paths_.map;
  for (int step = 1; step < map.hosts(); ++step) {
    const int host = (map.host() + step) % map.hosts();
    const HostShare& share = sent_[host];
    const int to = delegateAt(host);
    add(net->send(to, 0, wordBytes(share.note), share.note.size() * sizeof share.note[0]));
    add(net->send(to, 1, reinterpret_cast<const std::byte*>(share.positions.data()),
                  share.positionBytes()));
  }
}

}  // namespace ctran
