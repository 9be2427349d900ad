#pragma once

#include <memory>
#include <vector>

#include <mscclpp/core.hpp>
#include <mscclpp/switch_channel_device.hpp>

namespace mscclpp {

/// Buffers of several ranks, which each of them reduces from and stores to.
class MSCCLPP_API SwitchChannel {
 public:
  using DeviceHandle = SwitchChannelDeviceHandle;
  DeviceHandle deviceHandle() const;
  void* getDevicePtr() const;

 private:
  friend class NvlsConnection;
  std::vector<RegisteredMemory> memories_;
  void* own_ = nullptr;
};

/// The ranks of switch channels. The name is the one that programs use; multicast is never used.
class MSCCLPP_API NvlsConnection {
 public:
  NvlsConnection(std::shared_ptr<Communicator> communicator, std::vector<int> ranks,
                 size_t bufferSize);

  /// Collective over the ranks: each passes as many bytes of a GpuBuffer. Throws
  /// Error(InvalidUsage) if the sizes differ.
  SwitchChannel bindAllocatedMemory(CUdeviceptr devicePtr, size_t size);

 private:
  const std::shared_ptr<Communicator> communicator_;
  const std::vector<int> ranks_;
  const size_t bufferSize_;
};

/// `bufferSize` is the most that is bound.
MSCCLPP_API std::shared_ptr<NvlsConnection> connectNvlsCollective(
    std::shared_ptr<Communicator> comm, std::vector<int> allRanks, size_t bufferSize);

}  // namespace mscclpp
