#include "ctran/window/window.h"

#include <cstdint>
#include <iterator>
#include <numeric>

#include "ctran/base/checked.h"
#include "ctran/bootstrap/hand_over.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/window/queue_window.h"

namespace ctran {
namespace {

/// What every rank tells the others of the memory that it exposes.
struct RegionAnnouncement {
  uint64_t bytes;
  uint64_t signalWords;
  uint64_t tag;
  uint64_t fileBytes;  ///< of the shared memory that it lies in; 0: in none
  uint64_t fileOffset;
};

constexpr uint64_t kMaxSignalWords = 1 << 24;

/// The memory of a rank through the descriptor that it brought.
std::shared_ptr<std::byte> mapRegion(const RegionAnnouncement& region, const UniqueFd& fd) {
  auto file = SharedMapping::map(fd, region.fileBytes);
  if (!isInside(region.fileOffset, region.bytes, region.fileBytes)) {
    throw Error(ErrorKind::System, "a rank exposes memory that it does not have");
  }
  std::byte* const data = file->data() + region.fileOffset;
  return {std::move(file), data};
}

}  // namespace

std::string_view nameOf(Comparison comparison) {
  static constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">="};
  const auto index = static_cast<size_t>(comparison);
  return index < std::size(kNames) ? kNames[index] : "unknown comparison";
}

bool compare(uint64_t word, Comparison comparison, uint64_t value) {
  switch (comparison) {
    case Comparison::Equal:
      return word == value;
    case Comparison::NotEqual:
      return word != value;
    case Comparison::Less:
      return word < value;
    case Comparison::LessEqual:
      return word <= value;
    case Comparison::Greater:
      return word > value;
    case Comparison::GreaterEqual:
      return word >= value;
  }
  return false;
}

std::unique_ptr<Window> Window::create(Communicator& parent, std::span<std::byte> memory,
                                       const WindowOptions& options, WaitHooks* hooks) {
  if (memory.data() == nullptr && !memory.empty()) {
    throw Error(ErrorKind::InvalidArgument, "window: the memory is null");
  }
  if (options.signalWords > kMaxSignalWords) {
    throw Error(ErrorKind::InvalidArgument, "window: " + std::to_string(options.signalWords) +
                                                " signals of a rank, where " +
                                                std::to_string(kMaxSignalWords) + " are the most");
  }
  std::vector<int> ranks(parent.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto communicator =
      parent.split(ranks, parent.name() + "/" + options.name, options.timeout, hooks);
  communicator->useMemoryOf(parent);
  const int rank = parent.rank();

  const auto allocation =
      memory.empty() ? nullptr : SharedAllocation::find(memory.data(), memory.size());
  RegionAnnouncement own{memory.size(), options.signalWords, options.tag, 0, 0};
  if (allocation) {
    own.fileBytes = allocation->size();
    own.fileOffset = static_cast<uint64_t>(memory.data() - allocation->data());
  }
  const std::vector<RegionAnnouncement> all = exchangeAll(*communicator, own, {}, hooks);

  for (int r = 0; r < parent.size(); ++r) {
    Checked(all[r].signalWords).atMost(kMaxSignalWords, r, "words for signals", "new_window");
    Checked(all[r].bytes).atMost(PTRDIFF_MAX, r, "bytes of memory", "new_window");
  }
  // What the ranks of this host map; the rest goes by messages.
  const std::vector<int> near = communicator->neighbours();
  WindowSignals::Words words(all.size());
  for (const int r : near) words[r] = all[r].signalWords;
  const size_t boardBytes = WindowSignals::bytesFor(words);
  const HostGroup group = communicator->handOver(
      boardBytes, allocation ? allocation->fd().duplicate() : openOwnPidFd(), hooks);

  std::vector<QueueWindow::Region> regions;
  // Some memory cannot be mapped by all; all ranks find the same.
  bool served = near.size() < all.size();
  for (const RegionAnnouncement& region : all) {
    const auto tag = static_cast<uint32_t>(region.tag);
    regions.push_back({region.bytes, region.signalWords, tag, false, nullptr});
    served |= region.fileBytes == 0 && all.size() > 1;
  }
  for (size_t i = 0; i < near.size(); ++i) {
    const RegionAnnouncement& announced = all[near[i]];
    QueueWindow::Region& region = regions[near[i]];
    region.direct = announced.fileBytes != 0;
    if (region.direct) region.mapped = mapRegion(announced, group.brought[i]);
  }
  if (!regions[rank].direct) {  // here it needs no mapping
    regions[rank].direct = true;
    regions[rank].mapped = {std::shared_ptr<void>(), memory.data()};
  }
  QueueWindow::Registered registered;
  if (Transport* const transport = communicator->transport()) {
    registered.own = transport->registerMemory(memory);
    registered.remotes = exchangeAll(*communicator, registered.own->remote, {}, hooks);
  }
  auto window = std::make_unique<QueueWindow>(
      communicator, std::move(regions),
      WindowSignals(SharedMapping::map(group.memory, boardBytes), words), memory, served,
      std::move(registered));
  parent.addDependent(communicator);
  communicator->run({}, {}, hooks);  // all ranks listen from here on
  return window;
}

}  // namespace ctran
