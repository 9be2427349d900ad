#include "agreement.h"

#include "lines.h"
#include "memory.h"
#include "mscclpp/poll_device.hpp"

namespace mscclpp {
namespace {

constexpr int kTag = 0x6167'7265;

}  // namespace

Agreement::Agreement(Communicator& communicator)
    : bootstrap_(communicator.bootstrap()), numbers_(bootstrap_->getNranks()) {
  const int size = bootstrap_->getNranks();
  const int rank = bootstrap_->getRank();
  if (bootstrap_->getNranksPerNode() < size) return;
  std::vector<std::shared_future<Connection>> connections;
  std::vector<RegisteredMemory> words;
  for (std::shared_ptr<uint64_t>& word : own_) {
    word = allocateLine<uint64_t>(LineKind::Shared);
    words.push_back(communicator.registerMemory(word.get(), sizeof(uint64_t), Transport::CudaIpc));
  }
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    connections.push_back(communicator.connect(Transport::CudaIpc, r, kTag));
    for (const RegisteredMemory& word : words) communicator.sendMemory(word, r, kTag);
  }
  for (int r = 0, p = 0; r < size; ++r) {
    if (r == rank) continue;
    const Connection connection = connections[p++].get();
    Peer peer;
    for (RegisteredMemory& word : peer.words) word = communicator.recvMemory(r, kTag).get();
    peer.limits = communicator.buildSemaphore(connection, r, kTag).get();
    peers_.push_back(std::move(peer));
  }
}

const std::vector<uint32_t>& Agreement::all(uint32_t mine) {
  const int rank = bootstrap_->getRank();
  ++calls_;
  numbers_[rank] = mine;
  if (peers_.empty()) {
    if (numbers_.size() > 1) bootstrap_->allGather(numbers_.data(), sizeof mine);
    return numbers_;
  }
  const uint32_t turn = calls_ % 2;
  storeReleaseSystem(own_[turn].get(), uint64_t{calls_} << 32 | mine);
  for (int p = 0; const Peer& peer : peers_) {
    const auto* const word = static_cast<const uint64_t*>(peer.words[turn].data());
    uint64_t answer = 0;
    // Until all have read it, nobody writes another there.
    waitUntil([&] { return (answer = loadAcquireSystem(word)) >> 32 == calls_; },
              peer.limits.limit());
    numbers_[p < rank ? p : p + 1] = static_cast<uint32_t>(answer);
    ++p;
  }
  return numbers_;
}

}  // namespace mscclpp
