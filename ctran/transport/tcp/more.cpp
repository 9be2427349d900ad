// More connections to a peer than one. They are there for bandwidth, so none of this is ever an
// error: what cannot be had is done without. Once one of them is up it may hold data, and its loss
// is that of the peer.
#include <sys/socket.h>

#include <algorithm>

#include "ctran/base/config.h"
#include "ctran/base/log.h"
#include "ctran/os/process.h"
#include "ctran/transport/tcp/peer.h"

namespace ctran {
namespace {

constexpr size_t kBetweenMachines = 4;
constexpr int kManyCores = 8;

const ConfigInt kTcpConnections{
    "CTRAN_TCP_CONNECTIONS", 0,
    "How many connections a pair of ranks on different hosts uses for large messages. 0: one on "
    "the "
    "same machine, two if it has eight cores or more, four between machines, at least one for each "
    "interface that CTRAN_TCP_INTERFACES names, and those beside the first once they have moved 4 "
    "MB.",
    0, kMaxConnections};

}  // namespace

size_t TcpTransport::wantedConnections() { return static_cast<size_t>(kTcpConnections.get()); }

void TcpTransport::countBulk(Peer& peer, size_t bytes) {
  peer.bulkBytes += bytes;
  offerMore(peer);
  callMore(peer);
}

/// Calls, where it is time to, and this rank's turn: both ranks take part in every large message,
/// so that the lower one knows.
void TcpTransport::callMore(Peer& peer) {
  const size_t enough = connectionsWanted_ == 0 ? kBulkBytes : 1;
  if (peer.bulkBytes < enough || peer.hasCalledMore || peer.state() != State::Up) return;
  if (peer.hasRdma()) return;
  peer.hasCalledMore = true;
  if (rank_ > peer.rank || told_ || leaving_) return;
  try {
    for (const NetPath& path : morePaths(peer)) {
      if (Connection* const connection = unused(peer)) {
        call(*connection, {path.to}, path.from, Purpose::More);
      }
    }
  } catch (const Error& error) {  // no descriptor is left, for example
    doWithout(peer, error.what());
  }
}

/// Returns the paths of the connections after the first.
std::vector<NetPath> TcpTransport::morePaths(const Peer& peer) const {
  const std::vector<NetAddress> addresses = addressesOf(peer.rank);
  if (addresses.empty()) return {};
  // The first goes to, or comes from, one of these, unless addresses are translated on the way.
  NetPath first{{}, addresses.front()};
  const NetAddress remote = peer.first().link.socket().remote();
  for (const NetAddress& address : addresses) {
    if (address.family == remote.family && address.ip == remote.ip) first.to = address;
  }
  std::vector<NetPath> paths = {first};
  if (interfacesAreNamed()) paths = pathsBetween(ownAddresses_, addresses, first.to);
  size_t count = connectionsWanted_;
  if (count == 0) {  // as many over each path
    const size_t here = availableCores() >= kManyCores ? 2 : 1;
    const size_t least = isOnThisMachine(peer.rank) ? here : kBetweenMachines;
    count = std::min((least + paths.size() - 1) / paths.size() * paths.size(), kMaxConnections);
  }
  std::vector<NetPath> more;
  for (size_t i = 1; i < count; ++i) more.push_back(paths[i % paths.size()]);
  return more;
}

void TcpTransport::doWithout(const Peer& peer, const std::string& why) const {
  log(LogComponent::Transport, LogLevel::Info,
      "rank %d has fewer connections to %s than it wanted, and goes on with those it has: %s",
      rank_, describe(peer.rank).c_str(), why.c_str());
}

/// Returns an unused connection after the first; null if there are enough connections.
TcpTransport::Connection* TcpTransport::unused(Peer& peer) {
  for (const auto& connection : peer.connections) {
    if (!connection->isFirst() && connection->state == State::Unknown) return connection.get();
  }
  const size_t count = peer.connections.size();
  if (count == kMaxConnections) return nullptr;
  peer.connections.push_back(std::make_unique<Connection>(peer, static_cast<uint32_t>(count)));
  return peer.connections.back().get();
}

}  // namespace ctran
