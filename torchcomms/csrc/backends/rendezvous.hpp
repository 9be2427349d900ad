#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace torch::comms {

/// Waits until all `size` ranks are here, and returns a part of `store` that nothing has used: a
/// c10d backend leaves keys in its store that a second one must not read. Collective.
///
/// `key` can be used for another rendezvous once this has returned, or has failed on rank 0, which
/// picks the fresh prefix. Throws ctran::Error: on rank 0 a Timeout names who is missing, and the
/// other ranks that came are told.
c10::intrusive_ptr<c10d::Store> meet(const c10::intrusive_ptr<c10d::Store>& store,
                                     const std::string& key, int rank, int size,
                                     std::chrono::milliseconds timeout);

}  // namespace torch::comms
