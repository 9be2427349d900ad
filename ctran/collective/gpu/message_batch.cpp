#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "ctran/base/error.h"
#include "ctran/collective/exchange/flows.cuh"
#include "ctran/collective/gpu/messages.h"
#include "ctran/collective/plan/gpu.h"

namespace ctran {
namespace {

/// What the messages of a batch come to, for one rank: in order.
struct Ends {
  std::vector<const Collective*> sends, receives;

  /// Return the message at a place in an order; null behind the end.
  const Collective* send(size_t place) const { return at(sends, place); }
  const Collective* receive(size_t place) const { return at(receives, place); }
  /// Returns whether data changes places there.
  bool swapsAt(size_t place) const {
    const Collective *out = send(place), *in = receive(place);
    return out != nullptr && in != nullptr && out->blockBytes() != 0 && out->input == in->output;
  }

 private:
  static const Collective* at(const std::vector<const Collective*>& ends, size_t place) {
    return place < ends.size() ? ends[place] : nullptr;
  }
};

using EndsOfRanks = std::array<Ends, device::kMaxRanks>;

EndsOfRanks endsOf(std::span<const Collective> messages) {
  EndsOfRanks ends;
  for (const Collective& c : messages) {
    Ends& of = ends[c.root];
    (c.kind == CollectiveKind::Send ? of.sends : of.receives).push_back(&c);
  }
  return ends;
}

/// Pairs the messages of a rank with itself; leaves those that move something.
void pairWithItself(Ends& own, uint32_t rank) {
  const auto [sends, receives] = std::exchange(own, {});
  bool fits = sends.size() == receives.size();
  for (size_t k = 0; fits && k < sends.size(); ++k) {
    fits = sends[k]->blockBytes() == receives[k]->blockBytes();
    if (sends[k]->blockBytes() == 0 || sends[k]->input == receives[k]->output) continue;
    own.sends.push_back(sends[k]);
    own.receives.push_back(receives[k]);
  }
  if (fits) return;
  throw Error(
      ErrorKind::InvalidArgument, "a rank cannot send to itself, or receive from itself, alone",
      {static_cast<int>(rank)}, {}, "put the send and the recv, of the same size, into one batch");
}

/// The transfers of one kernel.
class Chains {
 public:
  Chains(const GpuContext& gpu, const GpuTarget& target) : gpu_(gpu), target_(target) {}

  /// Adds messages with `peer` at the end of the chain of that kind; a swap counts as a send. The
  /// first message of every chain comes before all others.
  void add(uint32_t kind, uint32_t peer, const Collective* send, const Collective* receive) {
    const Collective& c = send != nullptr ? *send : *receive;
    const device::Transfer transfer =
        dealt(gpu_,
              {.from = send != nullptr ? bytesAt(send->input) : nullptr,
               .to = receive != nullptr ? bytesAt(receive->output) : nullptr,
               .bytes = c.blockBytes(),
               .kind = kind,
               .peer = peer,
               .isLabelled = kind != device::kCopy,
               .sendTag = send != nullptr ? static_cast<uint32_t>(send->tag) : 0,
               .receiveTag = receive != nullptr ? static_cast<uint32_t>(receive->tag) : 0},
              false, target_);
    Chain& chain = chains_[peer][kind == device::kReceive];
    const auto index = static_cast<uint32_t>(transfers_.size());
    transfers_.push_back(transfer);
    if (chain.length++ == 0) {
      chain.first = index;
      ++count_;
    } else {
      uint32_t& blocks = transfers_[chain.first].blocks;
      blocks = std::max(blocks, transfer.flows);
      transfers_[chain.last].next = index;
    }
    chain.last = index;
  }

  void launch(StagingMemory& staging) const {
    if (transfers_.empty()) return;
    uint32_t blocks = 0;
    for (uint32_t k = 0; k < count_; ++k) blocks += transfers_[k].blocks;
    const GpuContext::Shape shape = gpu_.shapeOfFlows(blocks, target_);
    if (transfers_.size() != count_) {
      const device::ExchangeChainsArguments a{gpu_.team, count_, tableIn(staging)};
      return gpu_.run(gpu_.moving.chains, shape, &a, target_);
    }
    device::ExchangeArguments a{};
    a.team = gpu_.team;
    a.count = count_;
    std::copy(transfers_.begin(), transfers_.end(), a.transfers);
    gpu_.run(gpu_.moving.flows, shape, &a, target_);
  }

 private:
  struct Chain {
    uint32_t length, first, last;
  };

  /// Written before the kernel that follows, in this call and in every replay of it.
  const device::Transfer* tableIn(StagingMemory& staging) const {
    const gpu::DevicePtr memory = staging.of(transfers_.size() * sizeof(device::Transfer));
    auto* const table = reinterpret_cast<device::Transfer*>(memory);
    device::WriteTransfersArguments a{};
    for (size_t at = 0; at < transfers_.size(); at += a.count) {
      const auto left = std::span(transfers_).subspan(at);
      a.to = table + at;
      a.count = static_cast<uint32_t>(std::min<size_t>(device::kMaxTransfers, left.size()));
      std::copy_n(left.begin(), a.count, a.transfers);
      gpu_.run(gpu_.moving.writeTransfers, {1, kWarp}, &a, target_);
    }
    return table;
  }

  const GpuContext& gpu_;
  const GpuTarget& target_;
  std::vector<device::Transfer> transfers_;
  Chain chains_[device::kMaxRanks][2] = {};
  uint32_t count_ = 0;
};

/// Launches the messages from place `begin` to `end` at the same time.
void launchPlaces(const GpuContext& gpu, StagingMemory& staging, const EndsOfRanks& ends,
                  size_t begin, size_t end, const GpuTarget& target) {
  Chains chains(gpu, target);
  for (size_t place = begin; place < end; ++place) {
    for (uint32_t step = 1; step < gpu.size; ++step) {
      const uint32_t to = (gpu.rank + step) % gpu.size;
      const uint32_t from = (gpu.rank + gpu.size - step) % gpu.size;
      if (const Collective* send = ends[to].send(place)) {
        if (ends[to].swapsAt(place)) {
          chains.add(device::kSwap, to, send, ends[to].receive(place));
        } else {
          chains.add(device::kSend, to, send, nullptr);
        }
      }
      const Collective* receive = ends[from].receive(place);
      if (receive != nullptr && !ends[from].swapsAt(place)) {
        chains.add(device::kReceive, from, nullptr, receive);
      }
    }
    const Ends& own = ends[gpu.rank];
    if (own.send(place)) {
      chains.add(device::kCopy, gpu.rank, own.send(place), own.receive(place));
    }
  }
  chains.launch(staging);
}

}  // namespace

void launchMessages(const GpuContext& gpu, StagingMemory& staging,
                    std::span<const Collective> messages, const GpuTarget& target) {
  EndsOfRanks ends = endsOf(messages);
  pairWithItself(ends[gpu.rank], gpu.rank);
  size_t places = 0;
  bool inPlace = false;
  for (uint32_t peer = 0; peer < gpu.size; ++peer) {
    const Ends& of = ends[peer];
    places = std::max({places, of.sends.size(), of.receives.size()});
    for (size_t place = 0; peer != gpu.rank && place < of.sends.size(); ++place) {
      if (!of.swapsAt(place)) continue;
      inPlace = true;
      checkSwap(peer, of.sends[place]->blockBytes(), of.receives[place]->blockBytes());
    }
  }
  const size_t together = inPlace ? 1 : places;
  for (size_t begin = 0; begin < places; begin += together) {
    launchPlaces(gpu, staging, ends, begin, begin + together, target);
  }
}

}  // namespace ctran
