#pragma once

#include <comms/torchcomms/transport/RdmaTransport.h>

// Where folly is installed: the ends of RDMA transfers as folly's futures. A RdmaFuture converts to
// one, and folly::collectAll takes vectors of either. Without folly this header is
// RdmaTransport.h.

#if __has_include(<folly/futures/Future.h>)

#include <folly/futures/Future.h>

namespace torch::comms {

template <>
struct RdmaFutureAs<folly::SemiFuture<commResult_t>> {
  /// Takes the function of onReady(), so at most once for each transfer.
  static folly::SemiFuture<commResult_t> from(const RdmaFuture& future) {
    auto promise = std::make_shared<folly::Promise<commResult_t>>();
    folly::SemiFuture<commResult_t> made = promise->getSemiFuture();
    future.onReady([promise](commResult_t result) { promise->setValue(result); });
    return made;
  }
};

}  // namespace torch::comms

namespace folly {

/// What the transfers have ended with, in their order.
inline auto collectAll(std::vector<torch::comms::RdmaFuture> futures) {
  std::vector<SemiFuture<torch::comms::commResult_t>> ours(futures.begin(), futures.end());
  return collectAll(std::move(ours));
}

}  // namespace folly

#endif
