#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ctran::gpu {

/// A file of device code, stored in the library as text.
struct DeviceSource {
  std::string_view path;  ///< the path by which it is included: "ctran/gpu/device/packet.cuh"
  std::string_view text;
};

/// Returns every .cuh below ctran/, from a table that tools/embed_device_sources.py generates at
/// build time.
const std::vector<DeviceSource>& deviceSources();

}  // namespace ctran::gpu
