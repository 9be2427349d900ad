#include "ctran/collective/gpu/messages.h"

#include <string>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/collective/exchange/lanes.cuh"

namespace ctran {
namespace {

/// Between two ranks, one way: larger messages are faster in smaller steps.
constexpr size_t kSmallStepsFrom = 384 << 20;
constexpr size_t kSmallStep = 16384;

/// Whether both ends are the same memory: data changes places.
bool swaps(const GpuMessages& m, uint32_t peer) {
  return m.sendBytes[peer] != 0 && m.from[peer] == m.to[peer];
}

void checkSwaps(const GpuMessages& m, uint32_t rank, uint32_t size) {
  for (uint32_t peer = 0; peer < size; ++peer) {
    if (peer == rank || !swaps(m, peer) || m.sendBytes[peer] == m.receiveBytes[peer]) continue;
    throw Error(ErrorKind::InvalidArgument,
                "in place, a rank has to send another as much as it receives from it",
                {static_cast<int>(peer)}, {}, "use different memory for input and output");
  }
}

}  // namespace

GpuMessages GpuMessages::of(const Collective& c, uint32_t rank, uint32_t size) {
  using Kind = CollectiveKind;
  const size_t element = sizeOf(c.type);
  const bool isRoot = static_cast<uint32_t>(c.root) == rank;
  GpuMessages m;
  if (c.kind == Kind::AllToAllV) m.sends = m.receives = ((1u << size) - 1) & ~(1u << rank);
  m.oneWay = c.kind == Kind::Broadcast || c.kind == Kind::Gather || c.kind == Kind::Scatter;
  const auto sends = [&](uint32_t to, const std::byte* from, size_t count) {
    m.from[to] = bytesAt(from);
    m.sendBytes[to] = count * element;
  };
  const auto receives = [&](uint32_t from, std::byte* to, size_t count) {
    m.to[from] = bytesAt(to);
    m.receiveBytes[from] = count * element;
  };
  const auto sendsBlock = [&](uint32_t to) {
    const Block block = c.inputBlock(static_cast<int>(to));
    sends(to, block.data, block.count);
  };
  const auto receivesBlock = [&](uint32_t from) {
    const Block block = c.outputBlock(static_cast<int>(from));
    receives(from, block.data, block.count);
  };
  switch (c.kind) {
    case Kind::Broadcast:
      for (uint32_t r = 0; isRoot && r < size; ++r) {
        if (r != rank) sends(r, c.output, c.count);
      }
      if (!isRoot) receives(static_cast<uint32_t>(c.root), c.output, c.count);
      break;
    case Kind::AllGather:
    case Kind::AllGatherV:
      for (uint32_t r = 0; r < size; ++r) {
        sends(r, c.input, c.count);
        receivesBlock(r);
      }
      break;
    case Kind::Gather:
      sends(static_cast<uint32_t>(c.root), c.input, c.count);
      for (uint32_t r = 0; isRoot && r < size; ++r) receivesBlock(r);
      break;
    case Kind::Scatter:
      for (uint32_t r = 0; isRoot && r < size; ++r) sendsBlock(r);
      receives(static_cast<uint32_t>(c.root), c.output, c.count);
      break;
    default:  // all-to-all, of either kind
      for (uint32_t r = 0; r < size; ++r) {
        sendsBlock(r);
        receivesBlock(r);
      }
  }
  return m;
}

void exchangeOnLanes(const GpuContext& gpu, const GpuMessages& m, const GpuTarget& target) {
  checkSwaps(m, gpu.rank, gpu.size);
  device::ExchangeArguments a{};
  a.team = gpu.team;
  uint32_t lanes = 0;
  const auto add = [&](uint32_t kind, uint32_t peer, const char* from, char* to, size_t bytes) {
    const bool receives = kind == device::kReceive;
    const bool isLabelled = kind != device::kCopy && (receives ? m.receives : m.sends) >> peer & 1;
    if (bytes == 0 && !isLabelled) return;
    device::Transfer transfer{
        from, to, bytes, kind, peer, 0, 0, isLabelled, m.sendTags[peer], m.receiveTags[peer], {}};
    const bool oneWay = m.oneWay && kind != device::kCopy;
    gpu.deal(transfer, gpu.lanesOfPair(target, oneWay));
    if (oneWay && gpu.size == 2 && bytes >= kSmallStepsFrom) {
      transfer.stepBytes = std::min<uint32_t>(transfer.stepBytes, kSmallStep);
    }
    if (kind == device::kReceive &&
        bytes > size_t{device::kDepth} * transfer.lanes * transfer.stepBytes) {
      transfer.offer = device::makeOffer(gpu.placeOf(to, bytes, target.stream));
    }
    a.transfers[a.count++] = transfer;
    lanes += transfer.lanes;
  };
  for (uint32_t step = 1; step < gpu.size; ++step) {
    const uint32_t to = (gpu.rank + step) % gpu.size;
    const uint32_t from = (gpu.rank + gpu.size - step) % gpu.size;
    if (swaps(m, to)) {
      add(device::kSwap, to, m.from[to], m.to[to], m.sendBytes[to]);
    } else {
      add(device::kSend, to, m.from[to], nullptr, m.sendBytes[to]);
    }
    if (!swaps(m, from)) add(device::kReceive, from, nullptr, m.to[from], m.receiveBytes[from]);
  }
  if (m.from[gpu.rank] != m.to[gpu.rank]) {
    add(device::kCopy, gpu.rank, m.from[gpu.rank], m.to[gpu.rank], m.receiveBytes[gpu.rank]);
  }
  if (lanes != 0) gpu.run(gpu.moving.lanes, gpu.shapeOfLanes(lanes, target), &a, target);
}

void launchMessages(const GpuContext& gpu, std::span<const Collective> messages,
                    const GpuTarget& target) {
  // A launch has at most one message of each peer and direction: the first of those left.
  std::vector<const Collective*> left;
  for (const Collective& c : messages) left.push_back(&c);
  std::vector<GpuMessages> launches;
  while (!left.empty()) {
    GpuMessages m;
    std::vector<const Collective*> later;
    for (const Collective* c : left) {
      const bool isSend = c->kind == CollectiveKind::Send;
      uint32_t& ranks = isSend ? m.sends : m.receives;
      const uint32_t tag = static_cast<uint32_t>(c->tag);
      if (ranks >> c->root & 1) {
        later.push_back(c);
        continue;
      }
      ranks |= 1u << c->root;
      if (isSend) {
        m.from[c->root] = bytesAt(c->input);
        m.sendBytes[c->root] = c->blockBytes();
        m.sendTags[c->root] = tag;
      } else {
        m.to[c->root] = bytesAt(c->output);
        m.receiveBytes[c->root] = c->blockBytes();
        m.receiveTags[c->root] = tag;
      }
    }
    if ((m.sends ^ m.receives) >> gpu.rank & 1 ||
        m.sendBytes[gpu.rank] != m.receiveBytes[gpu.rank]) {
      throw Error(ErrorKind::InvalidArgument,
                  "a rank cannot send to itself, or receive from itself, alone",
                  {static_cast<int>(gpu.rank)}, {},
                  "put the send and the recv, of the same size, into one batch");
    }
    checkSwaps(m, gpu.rank, gpu.size);
    launches.push_back(m);
    left = std::move(later);
  }
  for (const GpuMessages& m : launches) exchangeOnLanes(gpu, m, target);
}

}  // namespace ctran
