#include "ctran/engine/hosts_communicator.h"

#include <algorithm>

#include "ctran/engine/peer_watcher.h"

namespace ctran {
namespace {

/// How long a rank that leaves waits for its last bytes to arrive.
constexpr std::chrono::milliseconds kLinger{1000};

/// This rank's own: see Board.
Board makeBoard(int rank, int size) {
  const size_t bytes = Board::bytesFor(size);
  return {SharedMapping::map(createSharedMemory("ctran", bytes), bytes), rank, size, false};
}

std::string algorithmOf(const CommunicatorOptions& options) {
  const auto hint = options.hints.find("ctran::algorithm");
  return hint == options.hints.end() ? std::string() : hint->second;
}

int ranksOnThisHost(const Hosts& hosts, int rank) {
  const auto here = [&](const Place& place) { return place.host == hosts.places[rank].host; };
  return static_cast<int>(std::count_if(hosts.places.begin(), hosts.places.end(), here));
}

}  // namespace

HostsCommunicator::HostsCommunicator(const CommunicatorOptions& options, Hosts hosts)
    : LaneCommunicator(options, board_, ranksOnThisHost(hosts, options.rank)),
      board_(makeBoard(options.rank, options.size)),
      transport_(board_, std::move(hosts), *this),
      collectives_(core_, transport_, algorithmOf(options)) {
  core_.driver = this;
}

void HostsCommunicator::start(WaitHooks* hooks) {
  board_.control(rank()).state.store(Board::RankState::Alive, std::memory_order_release);
  const std::weak_ptr<HostsCommunicator> weak =
      std::static_pointer_cast<HostsCommunicator>(shared_from_this());
  watch_ = PeerWatcher::watchReadable(transport_.fd(), [weak] {
    if (const auto self = weak.lock()) self->board_.wakeAll();
  });
  Collective barrier;
  barrier.kind = CollectiveKind::Barrier;
  run(barrier, {}, hooks);
}

HostsCommunicator::~HostsCommunicator() {
  if (core_.belongsHere()) leave();
  forgetLanes();
}

std::unique_ptr<Lane> HostsCommunicator::makeChannel(int peer, bool sends) {
  return std::make_unique<TcpChannelLane>(core_, transport_, peer, sends);
}

bool HostsCommunicator::isAborted() const {
  // What the others have said meanwhile is not known before somebody looks.
  if (!core_.failed()) transport_.poll();
  return core_.failed();
}

void HostsCommunicator::arm() {
  if (watch_ != 0) PeerWatcher::arm(watch_);
}

void HostsCommunicator::leave() {
  PeerWatcher::unwatch(watch_);
  auto& state = board_.control(rank()).state;
  if (state.exchange(Board::RankState::Left, std::memory_order_seq_cst) != Board::RankState::Left) {
    transport_.leave(kLinger);
  }
}

}  // namespace ctran
