#include "agreement.h"

#include <algorithm>

#include "lines.h"
#include "memory.h"
#include "mscclpp/poll_device.hpp"

namespace mscclpp {
namespace {

constexpr int kTag = 0x6167'7265;

}  // namespace

Agreement::Agreement(Communicator& communicator) : bootstrap_(communicator.bootstrap()) {
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

bool Agreement::any(bool mine) {
  ++calls_;
  if (peers_.empty()) {
    if (bootstrap_->getNranks() == 1) return mine;
    std::vector<char> answers(bootstrap_->getNranks());
    answers[bootstrap_->getRank()] = mine ? 1 : 0;
    bootstrap_->allGather(answers.data(), 1);
    return std::find(answers.begin(), answers.end(), 1) != answers.end();
  }
  const uint64_t turn = calls_ % 2;
  storeReleaseSystem(own_[turn].get(), calls_ << 1 | (mine ? 1 : 0));
  bool result = mine;
  for (const Peer& peer : peers_) {
    const auto* const word = static_cast<const uint64_t*>(peer.words[turn].data());
    uint64_t answer = 0;
    waitUntil([&] { return (answer = loadAcquireSystem(word)) >> 1 >= calls_; },
              peer.limits.limit());
    result = result || (answer & 1) != 0;
  }
  return result;
}

}  // namespace mscclpp
