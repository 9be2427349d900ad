#include "ctran/engine/tcp_lane.h"

#include <cstring>
#include <span>
#include <utility>

#include "ctran/base/sha256.h"
#include "ctran/collective/mismatch.h"
#include "ctran/collective/signature.h"
#include "ctran/collective/tcp_algorithms.h"
#include "ctran/engine/roll_call.h"

namespace ctran {
namespace {

uint64_t hashOf(const std::string& text) {
  if (text.empty()) return 0;
  const Digest digest = Sha256().add(std::as_bytes(std::span(text))).finish();
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

}  // namespace

TcpCollectiveLane::TcpCollectiveLane(Core& core, TcpTransport& transport, std::string algorithm)
    : Lane(core),
      algorithm_(std::move(algorithm)),
      tcp_(core.board, transport, hashOf(algorithm_)) {
  if (!algorithm_.empty()) checkTcpAlgorithm(algorithm_);
}

Task TcpCollectiveLane::start(const Collective& collective) {
  tcp_.begin(collective);
  return chooseTcpAlgorithm(collective, core.size(), algorithm_)(tcp_, collective);
}

void TcpCollectiveLane::checkPeers() {
  checkSignatures(core.board, tcp_.sequence(), tcp_.signature());
}

Error TcpCollectiveLane::timeoutError(const Collective& collective, const Condition& waiting,
                                      int64_t timeoutNanos) {
  return remoteTimeout(core, collective, tcp_.sequence(), waiting.rank, timeoutNanos);
}

Task TcpChannelLane::start(const Collective& collective) {
  record_ = core.beginMessage(makeRecord(collective, 0, 0));
  return sends_ ? sendTcp(channel_, collective) : recvTcp(channel_, collective);
}

Error TcpChannelLane::timeoutError(const Collective& collective, const Condition&,
                                   int64_t timeoutNanos) {
  return channelTimeout(core, collective, timeoutNanos);
}

}  // namespace ctran
