#include "ctran/engine/local_communicator.h"

#include <numeric>

namespace ctran {
namespace {

std::vector<int> allRanks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

LocalCommunicator::LocalCommunicator(const CommunicatorOptions& options, HostGroup group)
    : LaneCommunicator(options, arena_, options.size),
      arena_(SharedMapping::map(group.memory, Arena::bytesFor(options.size)), options.rank,
             options.size),
      watch_(allRanks(options.size), std::move(group)),
      collectives_(core_, arena_) {}

void LocalCommunicator::start(WaitHooks* hooks) {
  arena_.control(rank()).state.store(Arena::RankState::Alive, std::memory_order_release);
  watch_.start(shared_from_this());
  Collective barrier;
  barrier.kind = CollectiveKind::Barrier;
  run(barrier, {}, hooks);
}

std::unique_ptr<Lane> LocalCommunicator::makeChannel(int peer, bool sends) {
  return std::make_unique<ChannelLane>(core_, arena_, peer, sends);
}

HostGroup LocalCommunicator::handOver(size_t bytes, UniqueFd brings, WaitHooks* hooks) {
  std::unique_ptr<Leader> leader;
  LeaderAddress address;
  if (rank() == 0) {
    leader = std::make_unique<Leader>();
    address = leader->address();
  }
  Collective tell;
  tell.kind = CollectiveKind::Broadcast;
  tell.type = DataType::Opaque1;
  tell.count = sizeof address;
  tell.output = reinterpret_cast<std::byte*>(&address);
  run(tell, {}, hooks);
  const Deadline deadline = deadlineAfter(timeout());
  if (leader) {
    return leader->gather(size(), createSharedMemory("ctran", bytes), deadline, interruptOf(hooks),
                          std::move(brings));
  }
  auto group = join(address, rank(), size(), deadline, interruptOf(hooks), nullptr, hostIdentity(),
                    std::move(brings));
  if (group) return std::move(*group);
  throw Error(ErrorKind::PeerLost, "rank 0 of '" + name() + "' died, or gave up", {0}, {},
              "see its output for the reason");
}

LocalCommunicator::~LocalCommunicator() {
  if (core_.belongsHere()) leave();
  forgetLanes();
}

void LocalCommunicator::leave() {
  watch_.stop();
  auto& state = arena_.control(rank()).state;
  if (state.exchange(Arena::RankState::Left, std::memory_order_seq_cst) != Arena::RankState::Left) {
    arena_.wakeAll();
  }
}

}  // namespace ctran
