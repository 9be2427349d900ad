#pragma once

#include <string>

#include "ctran/base/data_type.h"
#include "ctran/base/reduce_op.h"
#include "ctran/gpu/driver.h"
#include "ctran/gpu/nvrtc.h"

namespace ctran {

/// The kernels that move data among so many ranks, on one device.
struct MovingKernels {
  gpu::Function lanes = nullptr;        ///< collective/exchange/lanes.cuh
  gpu::Function packets = nullptr;      ///< collective/exchange/packets.cuh
  gpu::Function waitForCopy = nullptr;  ///< these three: collective/exchange/copy_signals.cuh
  gpu::Function signalCopy = nullptr;
  gpu::Function meet = nullptr;
  gpu::Function countRows = nullptr;  ///< this and the next: collective/all_to_all/rows.cuh
  gpu::Function moveRows = nullptr;

  /// Loaded, and if need be compiled, at the first call in this process; kept for ever.
  static const MovingKernels& of(int device, int ranks);
};

/// The kernels of a reduction: one type, one operation.
struct ReducingKernels {
  gpu::Function oneShot = nullptr;  ///< this and the next two: null if packets hold no element
  gpu::Function twoShot = nullptr;
  gpu::Function packets = nullptr;
  gpu::Function pipeline = nullptr;
  size_t elementBytes = 0;  ///< as the kernels count: a complex number may be two elements
  size_t perElement = 1;

  static const ReducingKernels& of(int device, int ranks, DataType type, ReduceKind op);
};

/// collective/reduce_scatter/quantized.cuh, kept for ever.
gpu::Function quantizedKernel(int device, int ranks);

/// A kernel that is compiled, or taken from the cache, and loaded for good. May be called while a
/// stream captures.
gpu::Function loadKernel(int device, const gpu::CompileRequest& request, const std::string& name);

/// How they are compiled, for an architecture.
gpu::CompileRequest movingRequest(const std::string& architecture, int ranks);
gpu::CompileRequest quantizedRequest(const std::string& architecture, int ranks);
gpu::CompileRequest reducingRequest(const std::string& architecture, int ranks, DataType type,
                                    ReduceKind op);

/// What the device code calls them.
struct DeviceReduction {
  const char* element;
  const char* op;
  size_t elementBytes;
  size_t perElement;
};
DeviceReduction deviceReduction(DataType type, ReduceKind op);

}  // namespace ctran
