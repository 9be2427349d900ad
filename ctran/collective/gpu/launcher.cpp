#include "ctran/collective/gpu/launcher.h"

#include <algorithm>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/collective/all_to_all/rows.cuh"
#include "ctran/collective/exchange/lanes.cuh"
#include "ctran/collective/exchange/packets.cuh"
#include "ctran/collective/reduce/arguments.cuh"
#include "ctran/collective/reduce_scatter/quantized.cuh"
#include "ctran/collective/row_exchange.h"
#include "ctran/gpu/device/line.cuh"

namespace ctran {
namespace {

constexpr size_t kPacketData = 12;
constexpr size_t kUnitData = device::kUnitWords * 16;
constexpr size_t kUnitRoom = device::kUnitSlots * 16;
constexpr uint32_t kLaneThreads = 512;  ///< of all rows of a block

// From sweeps on four H200, and on two; docs/backends/ctran_gpu.md has them.

/// Bytes up to which one-shot all-reduce is faster than two-shot.
size_t oneShotLimit(uint32_t size) {
  if (size <= 2) return 512 << 10;
  if (size <= 4) return 160 << 10;
  return 32 << 10;
}
constexpr size_t kTwoShotLimit = 2200000;
constexpr size_t kLinesFrom = 1 << 20;  ///< measured on two; of all parts
/// Of what one rank sends another.
constexpr size_t kPacketLimit = 512 << 10;
constexpr size_t kLeastChunk = 4096;
constexpr size_t kLeastStep = 16384;  ///< of messages
/// Between two ranks, one way: larger messages are faster in smaller steps.
constexpr size_t kSmallStepsFrom = 384 << 20;
constexpr size_t kSmallStep = 16384;
constexpr size_t kLeastGrain = 512;  ///< of chunks
constexpr size_t kBroadcastInPartsFrom = 1 << 20;

size_t ceilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

/// What a lane has in all, in as few pieces as there is room for, and those of the same size.
uint32_t evenly(size_t bytes, size_t room) {
  const size_t piece = ceilDiv(bytes, std::max<size_t>(1, ceilDiv(bytes, room)));
  const size_t grains = ceilDiv(piece, kLeastGrain) * kLeastGrain;
  return static_cast<uint32_t>(std::min(room, std::max(grains, kLeastChunk)));
}

char* bytesAt(std::byte* data) { return reinterpret_cast<char*>(data); }
const char* bytesAt(const std::byte* data) { return reinterpret_cast<const char*>(data); }

}  // namespace

uint32_t GpuLauncher::lanesOf(uint32_t multiprocessors) {
  return std::min(device::kMostRows * multiprocessors, device::kMaxLanes);
}

GpuLauncher::GpuLauncher(const device::Team& team, int device, uint32_t multiprocessors,
                         SymmetricMemory& symmetric)
    : team_(team),
      rows_(multiprocessors < team.lanes ? device::kMostRows : 1),
      device_(device),
      rank_(team.rank),
      size_(team.size),
      moving_(MovingKernels::of(device, static_cast<int>(team.size))),
      symmetric_(symmetric) {}

/// A capture waits until the others have mapped what it uses: replays do what was captured.
device::Place GpuLauncher::placeOf(const void* address, size_t bytes, gpu::Stream stream) const {
  if (!DeviceSegment::any()) [[likely]]
    return {};
  const bool capturing = gpu::Runtime::of(gpu::Platform::Cuda).isCapturing(stream);
  return symmetric_.find(address, bytes, capturing);
}

void GpuLauncher::run(gpu::Function kernel, Shape shape, const void* arguments,
                      Target target) const {
  void* parameters[] = {const_cast<void*>(arguments)};
  gpu::check(gpu::Driver::get().launchKernel(kernel, shape.blocks, 1, 1, shape.threads, shape.rows,
                                             1, 0, target.stream, parameters, nullptr),
             "launching a kernel");
}

GpuLauncher::Shape GpuLauncher::shapeOfLanes(uint32_t lanes, Target target) const {
  const uint32_t rows = target.sharesGpu ? rows_ : 1;
  return {(lanes + rows - 1) / rows, kLaneThreads / rows_, rows};
}

GpuLauncher::Shape GpuLauncher::shapeFor(size_t packets, uint32_t mostBlocks) const {
  const uint32_t most = std::min({mostBlocks, team_.lanes, device::kMaxBlocks});
  const auto shape = [&](uint32_t threads) {
    return Shape{static_cast<uint32_t>(std::clamp<size_t>(ceilDiv(packets, threads), 1, most)),
                 threads};
  };
  for (const uint32_t threads : {128u, 256u}) {
    if (packets <= size_t{threads} * most) return shape(threads);
  }
  return shape(512);
}

uint32_t GpuLauncher::lanesOfPair(bool oneWay) const {
  // A message each way with every other rank, two with the one of two.
  const uint32_t messages = oneWay && size_ <= 2 ? 1 : std::max(2u, size_ - 1);
  return std::max(1u, team_.lanes / messages);
}

void GpuLauncher::deal(device::Transfer& transfer, size_t most) const {
  const size_t lanes = std::clamp<size_t>(ceilDiv(transfer.bytes, kLeastStep), 1, most);
  transfer.lanes = static_cast<uint32_t>(lanes);
  transfer.stepBytes = evenly(ceilDiv(transfer.bytes, lanes), team_.stepBytes);
}

void GpuLauncher::launch(const Collective& c, Target target) const {
  using Kind = CollectiveKind;
  switch (c.kind) {
    case Kind::AllReduce:
    case Kind::Reduce:
    case Kind::ReduceScatter:
    case Kind::ReduceScatterV:
      return reduce(c, target);
    case Kind::Broadcast:
      if (c.blockBytes() >= kBroadcastInPartsFrom && size_ > 2) return broadcastInParts(c, target);
      return exchange(messagesOf(c), c.blockBytes() <= kPacketLimit, target);
    case Kind::Barrier:
      return exchange({}, true, target);
    case Kind::AllGatherV: {
      size_t most = 0;
      for (const Block& block : c.outputs) most = std::max(most, block.count * sizeOf(c.type));
      return exchange(messagesOf(c), most <= kPacketLimit, target);
    }
    case Kind::AllToAllV:  // what others exchange is not known here
      return exchange(messagesOf(c), false, target);
    case Kind::AllToAllVDynamic:
      return exchangeRows(c, target);
    case Kind::Send:
    case Kind::Recv:
      return launchMessages({&c, 1}, target);
    default:
      return exchange(messagesOf(c), c.blockBytes() <= kPacketLimit, target);
  }
}

GpuLauncher::Messages GpuLauncher::messagesOf(const Collective& c) const {
  using Kind = CollectiveKind;
  const size_t element = sizeOf(c.type);
  const bool isRoot = static_cast<uint32_t>(c.root) == rank_;
  Messages m;
  if (c.kind == Kind::AllToAllV) m.sends = m.receives = ((1u << size_) - 1) & ~(1u << rank_);
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
      for (uint32_t r = 0; isRoot && r < size_; ++r) {
        if (r != rank_) sends(r, c.output, c.count);
      }
      if (!isRoot) receives(static_cast<uint32_t>(c.root), c.output, c.count);
      break;
    case Kind::AllGather:
    case Kind::AllGatherV:
      for (uint32_t r = 0; r < size_; ++r) {
        sends(r, c.input, c.count);
        receivesBlock(r);
      }
      break;
    case Kind::Gather:
      sends(static_cast<uint32_t>(c.root), c.input, c.count);
      for (uint32_t r = 0; isRoot && r < size_; ++r) receivesBlock(r);
      break;
    case Kind::Scatter:
      for (uint32_t r = 0; isRoot && r < size_; ++r) sendsBlock(r);
      receives(static_cast<uint32_t>(c.root), c.output, c.count);
      break;
    default:  // all-to-all, of either kind
      for (uint32_t r = 0; r < size_; ++r) {
        sendsBlock(r);
        receivesBlock(r);
      }
  }
  return m;
}

void GpuLauncher::exchange(const Messages& m, bool inPackets, Target target) const {
  if (size_ > 1 && inPackets) return exchangePackets(m, target);
  exchangeLanes(m, target);
}

void GpuLauncher::exchangePackets(const Messages& m, Target target) const {
  device::PacketExchangeArguments a{};
  a.team = team_;
  size_t most = 0;
  for (uint32_t r = 0; r < size_; ++r) {
    a.from[r] = m.from[r];
    a.to[r] = m.to[r];
    a.sendBytes[r] = m.sendBytes[r];
    a.receiveBytes[r] = m.receiveBytes[r];
    a.sendPackets[r] = device::messagePackets(m.sendBytes[r]);
    a.receivePackets[r] = device::messagePackets(m.receiveBytes[r]);
    most = std::max({most, m.sendBytes[r], m.receiveBytes[r]});
    if (r == rank_) continue;
    a.mostSent = std::max(a.mostSent, a.sendPackets[r]);
    a.mostReceived = std::max(a.mostReceived, a.receivePackets[r]);
  }
  run(moving_.packets, shapeFor(ceilDiv(most, kPacketData), 48), &a, target);
}

bool GpuLauncher::swaps(const Messages& m, uint32_t peer) {
  return m.sendBytes[peer] != 0 && m.from[peer] == m.to[peer];
}

void GpuLauncher::checkSwaps(const Messages& m) const {
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || !swaps(m, peer) || m.sendBytes[peer] == m.receiveBytes[peer]) continue;
    throw Error(ErrorKind::InvalidArgument,
                "in place, a rank has to send another as much as it receives from it",
                {static_cast<int>(peer)}, {}, "use different memory for input and output");
  }
}

void GpuLauncher::exchangeLanes(const Messages& m, Target target) const {
  checkSwaps(m);
  device::ExchangeArguments a{};
  a.team = team_;
  uint32_t lanes = 0;
  const auto add = [&](uint32_t kind, uint32_t peer, const char* from, char* to, size_t bytes) {
    const bool receives = kind == device::kReceive;
    const bool isLabelled = kind != device::kCopy && (receives ? m.receives : m.sends) >> peer & 1;
    if (bytes == 0 && !isLabelled) return;
    device::Transfer transfer{
        from, to, bytes, kind, peer, 0, 0, isLabelled, m.sendTags[peer], m.receiveTags[peer], {}};
    const bool oneWay = m.oneWay && kind != device::kCopy;
    deal(transfer, lanesOfPair(oneWay));
    if (oneWay && size_ == 2 && bytes >= kSmallStepsFrom) {
      transfer.stepBytes = std::min<uint32_t>(transfer.stepBytes, kSmallStep);
    }
    if (kind == device::kReceive &&
        bytes > size_t{device::kDepth} * transfer.lanes * transfer.stepBytes) {
      transfer.offer = device::makeOffer(placeOf(to, bytes, target.stream));
    }
    a.transfers[a.count++] = transfer;
    lanes += transfer.lanes;
  };
  for (uint32_t step = 1; step < size_; ++step) {
    const uint32_t to = (rank_ + step) % size_;
    const uint32_t from = (rank_ + size_ - step) % size_;
    if (swaps(m, to)) {
      add(device::kSwap, to, m.from[to], m.to[to], m.sendBytes[to]);
    } else {
      add(device::kSend, to, m.from[to], nullptr, m.sendBytes[to]);
    }
    if (!swaps(m, from)) add(device::kReceive, from, nullptr, m.to[from], m.receiveBytes[from]);
  }
  if (m.from[rank_] != m.to[rank_]) {
    add(device::kCopy, rank_, m.from[rank_], m.to[rank_], m.receiveBytes[rank_]);
  }
  if (lanes != 0) run(moving_.lanes, shapeOfLanes(lanes, target), &a, target);
}

/// The root sends each other rank another part, and that sends it on to the rest while it comes:
/// the root's link carries the data once.
void GpuLauncher::broadcastInParts(const Collective& c, Target target) const {
  const size_t bytes = c.blockBytes();
  const size_t share = ceilDiv(ceilDiv(bytes, size_ - 1), 16) * 16;
  const uint32_t root = static_cast<uint32_t>(c.root);
  device::ExchangeArguments a{};
  a.team = team_;
  uint32_t lanes = 0;
  for (uint32_t r = 0; r < size_; ++r) {
    if (r == root) continue;
    const size_t begin = std::min(bytes, (r < root ? r : r - 1) * share);
    const size_t length = std::min(bytes - begin, share);
    if (length == 0) continue;
    char* part = bytesAt(c.output) + begin;
    device::Transfer transfer{part, part, length, device::kReceive, r, 0, 0, 0, 0, 0, {}};
    if (rank_ == root) transfer.kind = device::kSend;
    if (rank_ == r) {
      transfer.kind = device::kRelay;
      transfer.peer = root;
    }
    deal(transfer, lanesOfPair());
    a.transfers[a.count++] = transfer;
    lanes += transfer.lanes;
  }
  run(moving_.lanes, shapeOfLanes(lanes, target), &a, target);
}

/// Rows in the order of the ranks, at both ends.
void GpuLauncher::exchangeRows(const Collective& c, Target target) const {
  const RowExchange& x = *c.rows;
  if (x.sendIndices || x.chunkRows || x.dedup || !c.outputs.empty()) {
    throw Error(ErrorKind::Unsupported, "rows and chunks cannot be listed on GPUs in this version",
                {}, std::string(nameOf(c.kind)),
                "put the rows in the order of the ranks, and use device_alltoallv_single");
  }
  device::CountRowsArguments count{};
  count.team = team_;
  count.sendCounts = reinterpret_cast<const device::i64*>(x.sendCounts);
  count.expected = reinterpret_cast<const device::i64*>(x.expected);
  count.received = reinterpret_cast<device::i64*>(x.received);
  count.inputRows = x.inputRows;
  count.outputRows = x.outputRows;
  count.rowBytes = c.blockBytes();
  const RowKernels& kernels = RowKernels::of(device_, static_cast<int>(size_));
  run(kernels.count, {1, 64}, &count, target);
  device::MoveRowsArguments move{};
  move.team = team_;
  move.input = bytesAt(c.input);
  move.output = bytesAt(c.output);
  move.lanes = lanesOfPair();
  run(kernels.move, shapeOfLanes(device::moveRowsLanes(size_, move.lanes), target), &move, target);
}

void GpuLauncher::launchMessages(std::span<const Collective> messages, Target target) const {
  // A launch has at most one message of each peer and direction: the first of those left.
  std::vector<const Collective*> left;
  for (const Collective& c : messages) left.push_back(&c);
  std::vector<Messages> launches;
  while (!left.empty()) {
    Messages m;
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
    if ((m.sends ^ m.receives) >> rank_ & 1 || m.sendBytes[rank_] != m.receiveBytes[rank_]) {
      throw Error(ErrorKind::InvalidArgument,
                  "a rank cannot send to itself, or receive from itself, alone",
                  {static_cast<int>(rank_)}, {},
                  "put the send and the recv, of the same size, into one batch");
    }
    checkSwaps(m);
    launches.push_back(m);
    left = std::move(later);
  }
  for (const Messages& m : launches) exchangeLanes(m, target);
}

uint32_t GpuLauncher::chunkFor(size_t bytes, size_t room) const {
  return evenly(ceilDiv(bytes, team_.lanes), room);
}

void GpuLauncher::launchQuantized(const Collective& c, const Quantization& quantization,
                                  Target target) const {
  if (c.type != DataType::Float32 ||
      (c.op.kind != ReduceKind::Sum && c.op.kind != ReduceKind::Avg)) {
    throw Error(ErrorKind::Unsupported,
                "a quantized reduce_scatter is a sum or an average of float32", {}, c.describe(),
                "use reduce_scatter_single");
  }
  device::QuantizedArguments a{};
  a.team = team_;
  for (uint32_t r = 0; r < size_; ++r) {
    a.parts[r] = reinterpret_cast<const float*>(c.inputBlock(static_cast<int>(r)).data);
  }
  a.output = reinterpret_cast<float*>(c.output);
  a.count = c.count;
  a.seed = quantization.seed;
  a.seedAt = reinterpret_cast<const device::u64*>(quantization.seedAt);
  a.average = c.op.kind == ReduceKind::Avg ? 1 : 0;
  const size_t wire = c.count * 2;
  a.chunkBytes = chunkFor(wire, team_.stepBytes);
  a.chunks = ceilDiv(wire, a.chunkBytes);
  if (a.chunks == 0) return;
  const uint32_t lanes = static_cast<uint32_t>(std::min<size_t>(team_.lanes, a.chunks));
  run(quantizedKernel(device_, static_cast<int>(size_)), shapeOfLanes(lanes, target), &a, target);
}

void GpuLauncher::reduce(const Collective& c, Target target) const {
  using Kind = CollectiveKind;
  const int ranks = static_cast<int>(size_);
  const ReducingKernels& kernels = ReducingKernels::of(device_, ranks, c.type, c.op.kind);
  const DeviceReduction reduction = deviceReduction(c.type, c.op.kind);
  const size_t element = reduction.elementBytes;
  const size_t count = c.count * reduction.perElement;
  const size_t perPacket = std::max<size_t>(1, kPacketData / element);
  const size_t slotPackets = team_.slotBytes / 16;
  device::ReduceArguments a{};
  a.team = team_;
  a.factor = c.op.factor;
  a.factorAt = c.op.factorAt;

  if (c.kind == Kind::ReduceScatter || c.kind == Kind::ReduceScatterV) {
    for (uint32_t r = 0; r < size_; ++r) {
      const Block block = c.inputBlock(static_cast<int>(r));
      a.parts[r] = block.data;
      a.counts[r] = block.count * reduction.perElement;
    }
    a.outputs[rank_] = c.output;
  } else if (c.kind == Kind::AllReduce && kernels.oneShot) {
    const size_t packets = ceilDiv(count, perPacket);
    const size_t share = ceilDiv(packets, size_);
    const size_t wire = packets * kPacketData;
    a.parts[0] = c.input;
    a.outputs[0] = c.output;
    a.counts[0] = count;
    if (wire <= oneShotLimit(size_) && packets <= slotPackets) {
      return run(kernels.oneShot, shapeFor(packets, 24), &a, target);
    }
    const bool inPackets =
        team_.lineBytes == 0 ? wire <= kTwoShotLimit : count * element < kLinesFrom;
    if (inPackets && 2 * share <= slotPackets) {
      return run(kernels.twoShot, shapeFor(share, 88), &a, target);
    }
  }
  if (c.kind == Kind::AllReduce || c.kind == Kind::Reduce) {
    const bool whole = c.kind == Kind::Reduce && count * element <= kPacketLimit;
    const uint32_t root = static_cast<uint32_t>(c.root);
    const size_t grain = std::max<size_t>(1, 16 / element);
    const size_t share = ceilDiv(ceilDiv(count, size_), grain) * grain;
    const bool gets = c.kind == Kind::AllReduce || root == rank_;
    for (uint32_t r = 0; r < size_; ++r) {
      const size_t begin = whole ? (r > root ? count : 0) : std::min(count, r * share);
      const size_t end = whole ? (r < root ? 0 : count) : std::min(count, (r + 1) * share);
      a.parts[r] = c.input + begin * element;
      a.outputs[r] = gets ? c.output + begin * element : nullptr;
      a.counts[r] = end - begin;
    }
    a.shareWith = c.kind == Kind::AllReduce ? (1u << size_) - 1 : 1u << root;
    if (whole) a.shareWith = 0;
  }
  size_t most = 0;
  for (uint32_t r = 0; r < size_; ++r) most = std::max<size_t>(most, a.counts[r]);
  const size_t packets = ceilDiv(most, perPacket);
  if (a.shareWith == 0 && kernels.packets && packets <= slotPackets &&
      packets * kPacketData <= kPacketLimit) {
    for (uint32_t r = 0; r < size_; ++r) {
      a.packets[r] = static_cast<uint32_t>(std::max<size_t>(1, ceilDiv(a.counts[r], perPacket)));
    }
    return run(kernels.packets, shapeFor(packets, 48), &a, target);
  }
  const size_t units = ceilDiv(most * element, kUnitData);
  if (most * element * size_ >= kLinesFrom &&
      units * kUnitRoom * (a.shareWith == 0 ? 1 : 2) <= team_.lineBytes) {
    for (uint32_t r = 0; r < size_; ++r) {
      a.packets[r] =
          static_cast<uint32_t>(std::max<size_t>(1, ceilDiv(a.counts[r] * element, kUnitData)));
    }
    a.most = static_cast<uint32_t>(std::max<size_t>(1, units));
    return run(linesKernel(device_, ranks, c.type, c.op.kind), shapeFor(units * 32, 128), &a,
               target);
  }
  a.chunkBytes = chunkFor(most * element, a.shareWith == 0 ? team_.stepBytes : team_.stepBytes / 2);
  a.chunks = ceilDiv(most * element, a.chunkBytes);
  if (a.chunks == 0) return;
  const uint32_t lanes = static_cast<uint32_t>(std::min<size_t>(team_.lanes, a.chunks));
  a.lookahead = 1;
  run(pipelineKernel(device_, ranks, c.type, c.op.kind), shapeOfLanes(lanes, target), &a, target);
}

}  // namespace ctran
