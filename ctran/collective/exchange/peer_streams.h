#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ctran/gpu/runtime.h"

namespace ctran {

/// A stream for every other rank, for what copy engines do at the same time: they branch off from
/// the stream of an operation, and join it again. A graph that this one captures has them as
/// branches.
class PeerStreams {
 public:
  PeerStreams(uint32_t rank, uint32_t size, int device);

  gpu::Stream of(uint32_t peer) const { return branches_[peer].stream->get(); }
  /// All of them behind `stream`.
  void fork(gpu::Stream stream);
  /// It behind all of them.
  void join(gpu::Stream stream);
  /// What comes next on `later` behind what there is on `earlier`.
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
