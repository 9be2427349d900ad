#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "mscclpp/core.hpp"

namespace mscclpp {

/// Memory of this process that connections between hosts write, while this lives. Other processes
/// know it by its id, a random number.
class Exposed {
 public:
  /// `gpu`: whose memory it is; -1: the host's.
  Exposed(char* data, uint64_t size, TransportFlags transports, int gpu);
  /// Nothing is written to the memory once this returns: a write that is under way ends before, or
  /// is broken off, and its connection with it, if it takes long.
  ~Exposed();
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;

  uint64_t id() const { return id_; }

  struct Entry;

 private:
  const uint64_t id_;
  const std::shared_ptr<Entry> entry_;
};

/// The right to write to a part of such memory, which stays what it is as long as this exists.
class Placement {
 public:
  /// `breakOff` is set if the write has to end early. Throws Error(InvalidUsage) if no memory of
  /// that id is exposed to that transport, or the part is not inside.
  Placement(uint64_t id, uint64_t offset, uint64_t size, Transport transport,
            std::atomic<bool>& breakOff);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  char* data() const { return data_; }
  int gpu() const;

 private:
  std::shared_ptr<Exposed::Entry> entry_;
  std::atomic<bool>& breakOff_;
  char* data_ = nullptr;
};

}  // namespace mscclpp
