#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ctran/memory/shared_allocation.h"
#include "ctran/transport/ib/device.h"

namespace ctran {

/// Memory of this process that devices read and write where it is. It is registered at a device
/// when a message first goes over that.
class IbRegion {
 public:
  static constexpr unsigned kWritten =
      ibverbx::IBV_ACCESS_LOCAL_WRITE | ibverbx::IBV_ACCESS_REMOTE_WRITE;
  static constexpr unsigned kRead = ibverbx::IBV_ACCESS_REMOTE_READ;

  /// `access`: what peers may do there.
  IbRegion(std::span<std::byte> memory, std::function<bool()> isCurrent, unsigned access = kWritten)
      : memory_(memory), isCurrent_(std::move(isCurrent)), access_(access) {}

  std::span<std::byte> memory() const { return memory_; }
  bool contains(const void* data, size_t bytes) const;
  /// Whether there is still the memory that was meant.
  bool isCurrent() const { return isCurrent_(); }
  /// Whether it is registered at the device. It is tried once.
  bool registerAt(const IbDevice& device);
  uint32_t lkey(const IbDevice& device) const;
  uint32_t rkey(const IbDevice& device) const;
  /// The device is about to be closed.
  void clearAt(const IbDevice& device);
  /// All of them are.
  void clear();

 private:
  const std::span<std::byte> memory_;
  const std::function<bool()> isCurrent_;
  const unsigned access_;
  mutable std::mutex mutex_;  // several transports may use it, and let go of it in any thread
  std::map<const IbDevice*, ibverbx::IbvMr> at_;
  bool hasFailed_ = false;
};

/// Where a message is to be written in the receiver's memory. It travels as it is.
struct IbTarget {
  uint64_t address = 0;
  uint32_t rails = 0;  ///< a bit for each rail at whose device the memory is registered
  uint32_t unused = 0;
  uint32_t keys[kMaxRails] = {};
};
static_assert(sizeof(IbTarget) == 32);

/// A message that is written from where it is to where it belongs, in parts or whole.
struct IbPlacement {
  std::shared_ptr<IbRegion> from;  ///< holds the memory's registration
  IbTarget to;                     ///< of the message's first byte
  uint32_t rails = 0;              ///< over which it may go
};

/// What a user has named for one communicator: for its transport, and those of its windows. Any
/// thread.
class NamedRegions {
 public:
  /// As long as somebody holds what it returns.
  std::shared_ptr<IbRegion> add(std::span<std::byte> memory, std::function<bool()> isCurrent);
  std::shared_ptr<IbRegion> find(const void* data, size_t bytes);
  void clearAt(const IbDevice& device);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<IbRegion>> regions_;
};

/// Those of one transport: what a user has named, and allocations of the engine's own
/// (SharedAllocation), whose lifetime is known. Memory of any other kind may be unmapped, and
/// something else mapped there, at any time: it is never registered.
class IbRegions {
 public:
  ~IbRegions();
  const std::shared_ptr<NamedRegions>& named() const { return named_; }
  /// From now on what is named there is named here, and the other way round.
  void shareNamed(std::shared_ptr<NamedRegions> named) { named_ = std::move(named); }
  /// A region with all of that memory; null if there is none.
  std::shared_ptr<IbRegion> find(const void* data, size_t bytes);

 private:
  std::shared_ptr<IbRegion> allocated(const void* data, size_t bytes);

  struct Allocated {
    std::weak_ptr<SharedAllocation> allocation;
    std::shared_ptr<IbRegion> region;
  };
  std::shared_ptr<NamedRegions> named_ = std::make_shared<NamedRegions>();
  std::map<const SharedAllocation*, Allocated> allocated_;
};

}  // namespace ctran
