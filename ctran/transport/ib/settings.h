#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ctran {

/// Devices that a pair of ranks uses together, at most.
inline constexpr uint32_t kMaxRails = 4;
/// Of CTRAN_IB_RING.
inline constexpr size_t kMostRingBytes = 64 << 20;

/// What the environment says of RDMA: the variables CTRAN_IB_*.
struct IbSettings {
  bool enabled = true;
  std::string hca;
  int gidIndex = -1;  ///< -1: chosen
  uint8_t trafficClass = 0;
  uint8_t serviceLevel = 0;
  uint8_t timeout = 16;
  uint8_t retryCount = 6;
  uint32_t mtuBytes = 0;  ///< 0: what both ports allow
  uint32_t numQps = 1;
  uint32_t rails = 4;  ///< devices that a pair uses together
  bool failsOver = true;
  std::string sysfs;  ///< where /sys is, for tests
  size_t ringBytes = 1 << 20;

  /// Throws Error(InvalidArgument) for a value that cannot be read.
  static IbSettings fromEnvironment();
};

/// The hint ctran::ib_fail_over of a communicator, which comes before CTRAN_IB_FAIL_OVER; nothing
/// if there is none. Throws Error(InvalidArgument) if it is neither "0" nor "1".
std::optional<bool> hintedFailOver(const std::map<std::string, std::string>& hints);

/// Which ports of which devices may be used: the forms of CTRAN_IB_HCA.
class HcaFilter {
 public:
  /// "mlx5,bnxt" begin so; "=mlx5_0:1,mlx5_1" are exactly these; "^mlx5_3" all but those that begin
  /// so; "^=mlx5_3:1" all but exactly these. A port may follow each name; empty: all. Throws
  /// Error(InvalidArgument) for anything else.
  explicit HcaFilter(const std::string& text);
  bool allows(const std::string& device, int port) const;

 private:
  struct Item {
    std::string name;
    int port = 0;  // 0: any
  };
  std::vector<Item> items_;
  bool excludes_ = false;
  bool exact_ = false;
};

}  // namespace ctran
