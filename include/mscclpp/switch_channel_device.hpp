#pragma once

#include <cstdint>

#include <mscclpp/device.hpp>
#include <mscclpp/gpu_data_types.hpp>

namespace mscclpp {

/// One buffer of each rank, all of the same size. No switch reduces or broadcasts: the calling
/// thread loads from all ranks, or stores to all. Signals of other channels order both with what
/// other ranks do.
struct SwitchChannelDeviceHandle {
  static constexpr int kMaxRanks = 72;

  /// The sum over all ranks of element `index`, in the order of ranks, added as AccumType.
  template <class T, class AccumType = T>
  MSCCLPP_DEVICE_INLINE T reduce(uint64_t index) const {
    if constexpr (kIsVector<T>) {
      using Element = typename T::ElementType;
      constexpr bool kSame = sizeof(AccumType) == sizeof(T);
      T value = static_cast<const T*>(buffers[0])[index];
      if constexpr (kSame) {
        for (int r = 1; r < ranks; ++r) value = value + static_cast<const T*>(buffers[r])[index];
      } else {
        typename AccumType::ElementType sums[T::Size];
        for (int i = 0; i < T::Size; ++i) {
          sums[i] = static_cast<typename AccumType::ElementType>(value[i]);
        }
        for (int r = 1; r < ranks; ++r) {
          const T theirs = static_cast<const T*>(buffers[r])[index];
          for (int i = 0; i < T::Size; ++i) {
            sums[i] = sums[i] + static_cast<typename AccumType::ElementType>(theirs[i]);
          }
        }
        for (int i = 0; i < T::Size; ++i) value[i] = static_cast<Element>(sums[i]);
      }
      return value;
    } else {
      auto sum = static_cast<AccumType>(static_cast<const T*>(buffers[0])[index]);
      for (int r = 1; r < ranks; ++r) {
        sum = sum + static_cast<AccumType>(static_cast<const T*>(buffers[r])[index]);
      }
      return static_cast<T>(sum);
    }
  }

  /// Stores `value` as element `index` of all ranks' buffers.
  template <class T>
  MSCCLPP_DEVICE_INLINE void broadcast(uint64_t index, const T& value) const {
    for (int r = 0; r < ranks; ++r) static_cast<T*>(buffers[r])[index] = value;
  }

  void* devicePtr;           ///< this rank's buffer
  void* buffers[kMaxRanks];  ///< in the order of ranks
  int ranks;
  size_t bufferSize;
};

}  // namespace mscclpp
