#pragma once

namespace ctran {

/// What serves GPUs that do not reach each other's memory.
enum class GpuFallback { HostMemory, None };

}  // namespace ctran
