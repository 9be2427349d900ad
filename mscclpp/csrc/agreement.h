#pragma once

#include <memory>
#include <vector>

#include "mscclpp/core.hpp"

namespace mscclpp {

/// How ranks learn, in each call, with which buffers the others call. Among ranks of one host it
/// takes a store and a load per rank.
///
/// Each rank writes the number of the call, and one for its buffers, to a word of its own, which
/// the others read. Two words take turns: who writes for call n + 2 has read for call n + 1 what
/// all wrote after they had read for call n.
class Agreement {
 public:
  /// Collective.
  explicit Agreement(Communicator& communicator);

  /// The numbers that all ranks pass, by rank; until the next call. Collective. Throws Error as
  /// waits do.
  const std::vector<uint32_t>& all(uint32_t mine);

 private:
  struct Peer {
    Semaphore limits;
    RegisteredMemory words[2];
  };

  const std::shared_ptr<Bootstrap> bootstrap_;
  std::shared_ptr<uint64_t> own_[2];
  std::vector<Peer> peers_;  // empty if they are on several hosts
  uint32_t calls_ = 0;
  std::vector<uint32_t> numbers_;
};

}  // namespace mscclpp
