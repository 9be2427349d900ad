#include "ctran/collective/gpu/messages.h"

#include <algorithm>

#include "ctran/base/error.h"
#include "ctran/collective/exchange/flows.cuh"

namespace ctran {
namespace {

/// Between two ranks, one way: larger messages are faster in smaller steps.
constexpr size_t kSmallStepsFrom = 384 << 20;
constexpr size_t kSmallStep = 16384;

/// Returns whether both ends are the same memory, so that data changes places.
bool swaps(const GpuMessages& m, uint32_t peer) {
  return m.sendBytes[peer] != 0 && m.from[peer] == m.to[peer];
}

void checkSwaps(const GpuMessages& m, uint32_t rank, uint32_t size) {
  for (uint32_t peer = 0; peer < size; ++peer) {
    if (peer != rank && swaps(m, peer)) checkSwap(peer, m.sendBytes[peer], m.receiveBytes[peer]);
  }
}

}  // namespace

void checkSwap(uint32_t peer, size_t sent, size_t received) {
  if (sent == received) return;
  throw Error(ErrorKind::InvalidArgument,
              "in place, a rank has to send another as much as it receives from it",
              {static_cast<int>(peer)}, {}, "use different memory for input and output");
}

device::Transfer dealt(const GpuContext& gpu, device::Transfer transfer, bool oneWay,
                       const GpuTarget& target) {
  gpu.deal(transfer, gpu.flowsOfPair(target, oneWay));
  if (oneWay && gpu.size == 2 && transfer.bytes >= kSmallStepsFrom) {
    transfer.stepBytes = std::min<uint32_t>(transfer.stepBytes, kSmallStep);
  }
  if (transfer.kind == device::kReceive &&
      transfer.bytes > size_t{device::kDepth} * transfer.flows * transfer.stepBytes) {
    transfer.offer = device::makeOffer(gpu.placeOf(transfer.to, transfer.bytes, target.stream));
  }
  return transfer;
}

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

void exchangeOnFlows(const GpuContext& gpu, const GpuMessages& m, const GpuTarget& target) {
  checkSwaps(m, gpu.rank, gpu.size);
  device::ExchangeArguments a{};
  a.team = gpu.team;
  uint32_t flows = 0;
  const auto add = [&](uint32_t kind, uint32_t peer, const char* from, char* to, size_t bytes) {
    const bool receives = kind == device::kReceive;
    const bool isLabelled = kind != device::kCopy && (receives ? m.receives : m.sends) >> peer & 1;
    if (bytes == 0 && !isLabelled) return;
    const device::Transfer transfer = dealt(gpu,
                                            {.from = from,
                                             .to = to,
                                             .bytes = bytes,
                                             .kind = kind,
                                             .peer = peer,
                                             .isLabelled = isLabelled},
                                            m.oneWay && kind != device::kCopy, target);
    a.transfers[a.count++] = transfer;
    flows += transfer.flows;
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
  if (flows != 0) gpu.run(gpu.moving.flows, gpu.shapeOfFlows(flows, target), &a, target);
}

}  // namespace ctran
