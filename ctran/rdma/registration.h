#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/rdma/devices.h"

namespace ctran {

/// What another process needs to reach registered memory, as a short text: whose memory, where it
/// is, and its keys at each device.
struct RdmaKey {
  uint64_t token = 0;  ///< RdmaDevices::token() of the owner
  uint64_t address = 0;
  uint64_t bytes = 0;
  std::vector<uint32_t> rkeys;

  std::string text() const;
  /// Throws Error(InvalidArgument) for what is none.
  static RdmaKey parse(std::string_view text);
};

/// Who keeps memory.
struct RdmaOwner {
  std::shared_ptr<void> object;
  /// Whether it is still the owner of that memory; null: as long as there is one.
  std::function<bool()> keeps = nullptr;

  bool isKeeping() const { return object && (!keeps || keeps()); }
};

/// Memory that is registered at all RDMA devices, for reading and writing by connected peers that
/// know its key.
class RdmaRegistration {
 public:
  /// `gpu` is the CUDA device whose memory it is, -1 for the host's. `owner` keeps the memory, if
  /// it is given. Throws Error.
  static std::shared_ptr<RdmaRegistration> of(void* address, size_t bytes, int gpu,
                                              RdmaOwner owner = {});
  /// A registration that covers this memory already and whose owner keeps it, or a new one. What
  /// nobody keeps could have been unmapped since, so it is never found here.
  static std::shared_ptr<RdmaRegistration> findOrMake(void* address, size_t bytes, int gpu,
                                                      RdmaOwner owner, bool& found);

  void* address() const { return address_; }
  size_t bytes() const { return bytes_; }
  int gpu() const { return gpu_; }
  /// Whether its owner keeps the memory.
  bool isKept() const { return owner_.isKeeping(); }
  const RdmaDevices& devices() const { return *devices_; }
  bool contains(const void* address, size_t bytes) const;
  uint32_t lkey(size_t device) const { return regions_[device].lkey(); }
  const RdmaKey& key() const { return key_; }

  /// Transfers of this process that use the memory now.
  void use();
  void release();
  /// Returns when no transfer uses it any more.
  void waitUntilUnused();

 private:
  RdmaRegistration(void* address, size_t bytes, int gpu, RdmaOwner owner)
      : address_(address), bytes_(bytes), gpu_(gpu), owner_(std::move(owner)) {}
  void registerAtAll();

  void* const address_;
  const size_t bytes_;
  const int gpu_;
  const RdmaOwner owner_;
  std::shared_ptr<RdmaDevices> devices_;
  std::vector<ibverbx::IbvMr> regions_;  // after devices_: they go first
  RdmaKey key_;

  std::mutex mutex_;
  std::condition_variable unused_;
  int users_ = 0;
};

/// Memory of a user's. What lies in a registration that is there need not be registered again for
/// transfers of this process; the key that peers get is for this memory alone.
class RdmaExtent {
 public:
  /// `reuses`: a registration that covers it will do; see RdmaRegistration::findOrMake().
  RdmaExtent(void* address, size_t bytes, int gpu, RdmaOwner owner, bool reuses);

  void* address() const { return address_; }
  size_t bytes() const { return bytes_; }
  bool isReused() const { return reused_; }
  bool contains(const void* address, size_t bytes) const;
  const std::shared_ptr<RdmaRegistration>& registration() const { return registration_; }
  /// Registers it by itself, once, if the registration that it reuses is of more. Throws Error.
  const RdmaKey& key();

 private:
  void* const address_;
  const size_t bytes_;
  const RdmaOwner owner_;
  bool reused_ = false;
  std::shared_ptr<RdmaRegistration> registration_;
  std::mutex mutex_;
  std::shared_ptr<RdmaRegistration> exposed_;  // of a part whose key has been asked for
};

/// A part of registered memory.
struct RdmaSpan {
  std::shared_ptr<RdmaRegistration> registration;
  void* data = nullptr;
  size_t bytes = 0;
};

/// Throws Error(InvalidArgument) if it does not lie inside.
RdmaSpan spanOf(const std::shared_ptr<RdmaRegistration>& registration, void* data, size_t bytes);
RdmaSpan spanOf(const RdmaExtent& extent, void* data, size_t bytes);

}  // namespace ctran
