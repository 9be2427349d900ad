#include "ctran/engine/host_memory.h"

#include <cstring>
#include <utility>

#include "ctran/base/checked.h"
#include "ctran/base/log.h"
#include "ctran/engine/create.h"
#include "ctran/trace/recording.h"
#include "ctran/transport/shm/arena.h"
#include "ctran/transport/tcp/transport.h"

namespace ctran {
namespace {

/// Behind arena and board: this, places, and the image of the map.
struct TablesHead {
  uint64_t placesBytes, mapNumbers;
};

size_t roundedUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Returns where the tables begin.
size_t beforeTables(int ranks) { return Arena::bytesFor(ranks) + Board::bytesFor(ranks); }

/// From there, where the image is.
size_t beforeImage(const TablesHead& head) {
  return sizeof head + roundedUp(head.placesBytes, sizeof(int));
}

/// Makes the memory at the first of several ranks of a host.
UniqueFd memoryWith(const Places& places, const HostMap& map) {
  const auto ranks = static_cast<int>(map.local().size());
  const TablesHead head{places.bytes().size(), map.image().size()};
  const size_t tables = beforeImage(head) + map.image().size_bytes();
  const size_t bytes = beforeTables(ranks) + roundedUp(tables, 4096) + Recording::bytesFor(ranks);
  UniqueFd memory = createSharedMemory("ctran", bytes);
  const auto mapping = SharedMapping::map(memory, bytes);
  std::byte* to = mapping->data() + beforeTables(ranks);
  std::memcpy(to, &head, sizeof head);
  std::memcpy(to + sizeof head, places.bytes().data(), head.placesBytes);
  std::memcpy(to + beforeImage(head), map.image().data(), map.image().size_bytes());
  return memory;
}

/// The tables of that memory, which the first rank of the host has filled.
HostMap useTables(const std::shared_ptr<SharedMapping>& mapping, int ranks, int rank, int size,
                  Places& places) {
  TablesHead head{};
  const std::byte* const at = mapping->data() + beforeTables(ranks);
  const size_t room = mapping->size() - beforeTables(ranks) - Recording::bytesFor(ranks);
  std::memcpy(&head, at, sizeof head);
  const Checked needed = Checked(sizeof head) + Checked(head.placesBytes) + sizeof(int) +
                         Checked(head.mapNumbers) * sizeof(int);
  if (!needed.isAtMost(room + sizeof(int))) {
    throw Error(ErrorKind::System, "the first rank of the host has shared no places");
  }
  places = Places::shared(mapping, {at + sizeof head, head.placesBytes}, size);
  const auto* const numbers = reinterpret_cast<const int*>(at + beforeImage(head));
  HostMap map(std::shared_ptr<const int[]>(mapping, numbers), head.mapNumbers, rank, size);
  if (std::ssize(map.local()) != ranks) {
    throw Error(ErrorKind::System, "the first rank of the host has shared the map of others");
  }
  return map;
}

/// This rank cannot be one of them: tells the others why.
void cannotJoin(const CommunicatorOptions& options, Hosts hosts, const Error& error) {
  class Nobody final : public Transport::Listener {
    void failed(const Error&) override {}
    void wakeUp() override {}
  } nobody;
  if (hosts.places.size() == 0) return;  // the first of the host does
  try {
    const HostMap map(hosts.places.hosts(), options.rank, Arena::kMaxRanks);
    if (map.hosts() < 2) return;
    const size_t bytes = Board::bytesFor(1);
    Board board(SharedMapping::map(createSharedMemory("ctran", bytes), bytes), options.rank,
                options.size, false);
    TcpTransport transport(board, std::move(hosts), nobody);
    transport.connect(rankToTell(map));
    transport.tell(error);
    transport.leave(kLinger);
  } catch (const Error& another) {  // as this rank has no descriptors left, which may be the reason
    log(LogComponent::Engine, LogLevel::Debug, "could not tell other hosts of a failure: %s",
        another.what());
  }
}

/// Makes the memory of a rank that is alone on its host. It is like that of other hosts, so that
/// all are alike.
HostMemory memoryAlone(const CommunicatorOptions& options, const Hosts& hosts) {
  HostMap map(hosts.places.hosts(), options.rank, Arena::kMaxRanks);
  const size_t bytes = (map.isShared() ? beforeTables(1) : 0) + Recording::bytesFor(1);
  HostMemory alone{std::move(map), {}, nullptr};
  alone.local.memory = createSharedMemory("ctran", bytes);
  if (alone.map.isShared()) alone.memory = SharedMapping::map(alone.local.memory, bytes);
  return alone;
}

}  // namespace

HostMemory shareMemory(const CommunicatorOptions& options, Hosts& hosts, Deadline deadline,
                       WaitHooks* hooks) {
  static_assert(Neighbours::kMost == Arena::kMaxRanks);
  const int ranks = hosts.neighbours.count;
  if (ranks == 1) return memoryAlone(options, hosts);
  try {
    UniqueFd memory;
    if (hosts.neighbours.ranks[0] == options.rank) {
      memory =
          memoryWith(hosts.places, HostMap(hosts.places.hosts(), options.rank, Arena::kMaxRanks));
    }
    const Blocking blocking(hooks);
    HostGroup local =
        shareHost(hosts, options.rank, std::move(memory), deadline, interruptOf(hooks));
    const size_t bytes = sharedMemoryBytes(local.memory.get());
    if (bytes < beforeTables(ranks) + sizeof(TablesHead) + Recording::bytesFor(ranks)) {
      throw Error(ErrorKind::System, "the first rank of the host has shared too little memory");
    }
    auto mapping = SharedMapping::map(local.memory, bytes);
    HostMap map = useTables(mapping, ranks, options.rank, options.size, hosts.places);
    return {std::move(map), std::move(local), std::move(mapping)};
  } catch (const Error& error) {
    cannotJoin(options, std::move(hosts), error);
    throw;
  }
}

}  // namespace ctran
