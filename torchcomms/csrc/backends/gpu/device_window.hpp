#pragma once

#include <comms/torchcomms/device/DeviceWindowLayout.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>

#include "ctran/window/gpu_window.h"

namespace torch::comms::gpu {

/// What kernels get of an open window (TorchCommDeviceWindow.hpp), and what the host learns of
/// them: the watchdog sees when one has failed, and breaks the communicator.
class DeviceWindow {
 public:
  struct Counts {
    uint64_t signals, counters, barriers;
    bool operator==(const Counts&) const = default;
  };

  /// Collective; if it fails on one rank, it throws on all. The window outlives this.
  DeviceWindow(ctran::GpuWindow& window, int rank, int size, int device, const Counts& counts);
  /// Ends the kernels that wait. What kernels use goes when the device runs none.
  ~DeviceWindow();
  DeviceWindow(const DeviceWindow&) = delete;
  DeviceWindow& operator=(const DeviceWindow&) = delete;

  const Counts& counts() const { return counts_; }
  /// The address that kernels get.
  uint64_t address() const;
  /// Breaks the communicator if a kernel has failed.
  void look();
  /// To be called when no kernel uses the window any more.
  void close() { kept_.reset(); }

 private:
  struct Kept;

  const Counts counts_;
  const int device_;
  const uint64_t process_;      ///< a forked child does not have the memory that kernels write
  std::shared_ptr<Kept> kept_;  ///< what kernels use
  std::shared_ptr<std::function<void()>> abort_, look_;
};

}  // namespace torch::comms::gpu
