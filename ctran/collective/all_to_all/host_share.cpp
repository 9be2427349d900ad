#include "ctran/collective/all_to_all/host_share.h"

namespace ctran {

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
  TcpContext* const tcp = paths_.tcp;
  for (CarriedShare& share : carried_) {
    auto& note = share.share.note;
    share.note = tcp->receive(share.source, 0, bytesOf(note), note.size() * sizeof note[0]);
  }
  const HostMap& map = paths_.map;
  for (int step = 1; step < map.hosts(); ++step) {
    const int host = (map.host() + step) % map.hosts();
    const HostShare& share = sent_[host];
    const int to = delegateAt(host);
    add(tcp->send(to, 0, bytesOf(share.note), share.note.size() * sizeof share.note[0]));
    add(tcp->send(to, 1, reinterpret_cast<const std::byte*>(share.positions.data()),
                  share.positionBytes()));
  }
}

}  // namespace ctran
