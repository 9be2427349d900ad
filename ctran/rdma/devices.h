#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ctran/transport/ib/device.h"

namespace ctran {

/// What a connection has at a device, for events that concern nothing else there.
struct RdmaWatch {
  size_t device = 0;  ///< its place in RdmaDevices
  std::vector<uint32_t> qpNums;
  const ibverbx::ibv_cq* cq = nullptr;

  std::atomic<bool> hasFailed{false};
  std::string why;  ///< written once, before `hasFailed`
};

/// The RDMA devices of this process that CTRAN_IB_HCA allows, opened once for all memory and all
/// transports: a key is good for connections of the protection domain that has made it. They are
/// closed when nobody holds them any more.
class RdmaDevices {
 public:
  static constexpr size_t kMost = 8;

  /// Throws Error(Unsupported) that says why there are none.
  static std::shared_ptr<RdmaDevices> get();

  size_t size() const { return devices_.size(); }
  const IbDevice& operator[](size_t index) const { return *devices_[index]; }
  /// Distinguishes this from the devices of other processes, and from those that were open before.
  uint64_t token() const { return token_; }
  /// Whether this is the process that has opened them, and no child of it.
  bool areOurs() const;

  /// From now on, as long as the caller holds it, it is told of events.
  void watch(const std::shared_ptr<RdmaWatch>& watch);
  /// Takes note of what has happened to devices, and to what is watched. Any thread.
  void pollEvents();
  bool isGone(size_t index) const { return gone_[index].load(std::memory_order_acquire); }
  /// Whether its port has lost its link, as far as events have told.
  bool isPortDown(size_t index) const { return down_[index].load(std::memory_order_acquire); }

 private:
  void take(size_t device, const ibverbx::IbvAsyncEvent& event);
  explicit RdmaDevices(std::vector<std::unique_ptr<IbDevice>> devices);

  std::vector<std::unique_ptr<IbDevice>> devices_;
  const uint64_t token_;
  const uint64_t process_;
  std::mutex events_;
  std::vector<std::weak_ptr<RdmaWatch>> watches_;  // guarded by events_
  std::array<std::atomic<bool>, kMost> gone_{}, down_{};
};

}  // namespace ctran
