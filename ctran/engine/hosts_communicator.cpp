#include "ctran/engine/hosts_communicator.h"

#include <cstring>
#include <utility>

#include "ctran/base/checked.h"
#include "ctran/base/log.h"
#include "ctran/engine/peer_watcher.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {
namespace {

/// How long a rank that leaves waits for its last bytes to arrive.
constexpr std::chrono::milliseconds kLinger{1000};

std::shared_ptr<SharedMapping> privateMemory(size_t bytes) {
  return SharedMapping::map(createSharedMemory("ctran", bytes), bytes);
}

/// What this host's ranks share; their own if they are alone, so that all hosts are alike.
std::shared_ptr<SharedMapping> memoryOf(const HostMap& map, const HostGroup& local) {
  if (!map.isShared()) return nullptr;
  const size_t bytes = HostsCommunicator::bytesFor(static_cast<int>(map.local().size()));
  return local.memory ? SharedMapping::map(local.memory, bytes) : privateMemory(bytes);
}

/// Behind the arena the failure, and what this host's ranks do; of other ranks every rank has what
/// it hears.
Board makeBoard(const HostMap& map, const std::shared_ptr<SharedMapping>& memory, int rank,
                int size) {
  auto own = privateMemory(Board::bytesFor(size));
  if (!memory) return {std::move(own), rank, size, false};
  const size_t arena = Arena::bytesFor(static_cast<int>(map.local().size()));
  return {memory, arena, rank, size, map.local(), std::move(own)};
}

/// The rank of the next host to whom this one tells what befalls its own.
int confidantOf(const HostMap& map) {
  const std::vector<int>& next = map.ranks((map.host() + 1) % map.hosts());
  return next[map.index() % next.size()];
}

Selector selectorFor(const HostMap& map, const std::map<std::string, std::string>& hints) {
  Selector selector(map);
  selector.prefer(hints);
  return selector;
}

/// The tuning table that all ranks go by: the one that rank 0 finds.
std::string tableOf(int rank, const HostMap& map) {
  if (rank != 0) return {};
  const TuningTable table = TuningTable::load(map.size(), {}, map.shape());
  if (table.entries.empty()) return {};
  std::string text = table.toJson().print();
  if (text.size() <= Meeting::kLongest) return text;
  log(LogLevel::Warn, "ignored a tuning table of %zu bytes", text.size());
  return {};
}

}  // namespace

HostMap HostsCommunicator::mapOf(const Hosts& hosts, int rank) {
  std::vector<std::string> names;
  for (const Place& place : hosts.places) {
    names.emplace_back(place.host.data(), ::strnlen(place.host.data(), place.host.size()));
  }
  return {names, rank, Arena::kMaxRanks};
}

size_t HostsCommunicator::bytesFor(int ranks) {
  return Arena::bytesFor(ranks) + Board::bytesFor(ranks);
}

HostsCommunicator::HostsCommunicator(const CommunicatorOptions& options, Hosts hosts,
                                     const HostMap& map, HostGroup local)
    : HostsCommunicator(options, std::move(hosts), map, std::move(local), memoryOf(map, local)) {}

HostsCommunicator::HostsCommunicator(const CommunicatorOptions& options, Hosts hosts,
                                     const HostMap& map, HostGroup&& local,
                                     std::shared_ptr<SharedMapping> memory)
    : LaneCommunicator(options, board_, static_cast<int>(map.local().size())),
      map_(map),
      board_(makeBoard(map_, memory, options.rank, options.size)),
      transport_(std::make_unique<TcpTransport>(board_, std::move(hosts),
                                                static_cast<Transport::Listener&>(*this))),
      collectives_(core_, *transport_, map_, memory ? &makeArena(std::move(memory)) : nullptr,
                   selectorFor(map_, options.hints)),
      localWatch_(map_.local(), std::move(local)) {
  core_.driver = this;
}

void HostsCommunicator::cannotJoin(const CommunicatorOptions& options, Hosts hosts,
                                   const HostMap& map, const Error& error) {
  class Nobody final : public Transport::Listener {
    void failed(const Error&) override {}
    void wakeUp() override {}
  } nobody;
  if (map.hosts() < 2) return;
  try {
    Board board(privateMemory(Board::bytesFor(options.size)), options.rank, options.size, false);
    TcpTransport transport(board, std::move(hosts), nobody);
    transport.connect(confidantOf(map));
    transport.tell(error);
    transport.leave(kLinger);
  } catch (const Error& another) {  // as this rank has no descriptors left, which may be the reason
    log(LogLevel::Debug, "could not tell other hosts of a failure: %s", another.what());
  }
}

Arena& HostsCommunicator::makeArena(std::shared_ptr<SharedMapping> memory) {
  arena_.emplace(std::move(memory), map_.index(), static_cast<int>(map_.local().size()),
                 map_.local().data());
  arena_->control(map_.index()).state.store(Board::RankState::Alive, std::memory_order_release);
  core_.sleepAt(*arena_, map_.local());
  return *arena_;
}

void HostsCommunicator::start(WaitHooks* hooks) {
  board_.control(rank()).state.store(Board::RankState::Alive, std::memory_order_release);
  const std::weak_ptr<HostsCommunicator> weak =
      std::static_pointer_cast<HostsCommunicator>(shared_from_this());
  watch_ = PeerWatcher::watchReadable(transport_->fd(), [weak] {
    if (const auto self = weak.lock()) self->core_.wakeOwn();
  });
  localWatch_.start(shared_from_this());
  if (arena_) {
    // Whoever fails has somebody to tell on another host.
    transport_->connect(confidantOf(map_));
  }
  collectives_.word() = tableOf(rank(), map_);
  Collective barrier;
  barrier.kind = CollectiveKind::Barrier;
  run(barrier, {}, hooks);
  const std::string& table = collectives_.word();
  if (table.empty()) return;
  try {
    collectives_.selector.use(TuningTable::fromJson(Json::parse(table, "what rank 0 says")));
  } catch (const Error& error) {
    throw core_.fail(
        Error(ErrorKind::Mismatch,
              std::string("rank 0 tells a tuning table that is none: ") + printable(error.what()),
              {0}, "new_comm"));
  }
}

Explanation HostsCommunicator::explainNative(CollectiveKind kind, size_t bytes, DataType type,
                                             const CallHints* hints) const {
  return collectives_.selector.explain(kind, bytes, toleratesPartialSums(type, ReduceKind::Sum),
                                       hints);
}

TuningTable HostsCommunicator::tune(const TuneOptions& options) {
  return tuneWith(collectives_.selector, map_.shape(), options);
}

HostsCommunicator::~HostsCommunicator() {
  if (core_.belongsHere()) leave();
  forgetLanes();
}

std::unique_ptr<Lane> HostsCommunicator::makeSendLane(int peer) {
  if (sharesMemory(peer)) return std::make_unique<ShmSendLane>(core_, *arena_, map_.indexOf(peer));
  return std::make_unique<NetSendLane>(core_, *transport_, peer);
}

std::unique_ptr<Mailbox> HostsCommunicator::makeMailbox(int peer) {
  if (sharesMemory(peer)) return std::make_unique<ShmMailbox>(*arena_, map_.indexOf(peer));
  return std::make_unique<NetMailbox>(*transport_, rank(), peer);
}

bool HostsCommunicator::poll() {
  const bool moved = transport_->poll();
  tellFailure();
  return moved;
}

/// Another rank of this host may have failed; those whom this one knows have to hear of it.
void HostsCommunicator::tellFailure() {
  if (!core_.failed() || told_.load(std::memory_order_acquire)) return;
  try {
    board_.throwFailure();
  } catch (const Error& error) {
    tell(error);
  }
}

void HostsCommunicator::tell(const Error& error) {
  // Who comes second waits: it may be about to end the process, and with it what is being told.
  std::lock_guard lock(tellMutex_);
  if (told_.load(std::memory_order_relaxed)) return;
  transport_->tell(error);
  told_.store(true, std::memory_order_release);
}

bool HostsCommunicator::isAborted() const {
  // What the others have said meanwhile is not known before somebody looks.
  if (!core_.failed()) transport_->poll();
  return core_.failed();
}

void HostsCommunicator::arm() {
  if (watch_ != 0) PeerWatcher::arm(watch_);
}

void HostsCommunicator::leave() {
  PeerWatcher::unwatch(watch_);
  localWatch_.stop();
  tellFailure();
  auto& state = board_.control(rank()).state;
  if (state.exchange(Board::RankState::Left, std::memory_order_seq_cst) != Board::RankState::Left) {
    if (arena_) arena_->wakeAll();
    transport_->leave(kLinger);
  }
}

}  // namespace ctran
