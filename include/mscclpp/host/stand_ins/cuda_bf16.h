#pragma once

// What programs for GPUs include, where they are compiled for the host.
#include <mscclpp/gpu_data_types.hpp>
