#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ctran/gpu/runtime.h"

namespace ctran {

/// A stream for every other rank, for what copy engines do at the same time. The streams branch off
/// from the stream of an operation, and join it again. If a graph captures that stream, they are
/// branches of the graph.
class PeerStreams {
 public:
  PeerStreams(uint32_t rank, uint32_t size, int device);

  gpu::Stream of(uint32_t peer) const { return branches_[peer].stream->get(); }
  /// Makes all of them wait for `stream`.
  void fork(gpu::Stream stream);
  /// Makes `stream` wait for all of them.
  void join(gpu::Stream stream);
  /// Makes what comes next on `later` wait for what `earlier` holds now.
  void follow(gpu::Stream later, gpu::Stream earlier);

 private:
  struct Branch {
    std::unique_ptr<gpu::OwnStream> stream;  ///< null for this rank
    gpu::PooledEvent end;
  };

  const gpu::Runtime& runtime_;
  const std::shared_ptr<gpu::EventPool> events_;
  std::vector<Branch> branches_;  ///< by rank
};

}  // namespace ctran
