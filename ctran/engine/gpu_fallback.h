#pragma once

namespace ctran {

/// What there is for GPUs that do not reach each other's memory.
enum class GpuFallback { HostMemory, None };

}  // namespace ctran
