#pragma once

#include <string>

#include "ctran/base/data_type.h"
#include "ctran/base/reduce_op.h"
#include "ctran/gpu/driver.h"
#include "ctran/gpu/nvrtc.h"

namespace ctran {

/// The kernels that move data among a number of ranks, on one device.
struct MovingKernels {
  gpu::Function flows = nullptr;  ///< these three: collective/exchange/flows.cuh
  gpu::Function chains = nullptr;
  gpu::Function writeTransfers = nullptr;
  gpu::Function packets = nullptr;      ///< collective/exchange/packets.cuh
  gpu::Function waitForCopy = nullptr;  ///< these three: collective/exchange/copy_signals.cuh
  gpu::Function signalCopy = nullptr;
  gpu::Function meet = nullptr;

  /// Loads the kernels, and if need be compiles them, at the first call in this process; keeps them
  /// for ever.
  static const MovingKernels& of(int device, int ranks);
};

/// The kernels of windows' signals: window/signals.cuh.
struct SignalKernels {
  gpu::Function send = nullptr;
  gpu::Function await = nullptr;

  static const SignalKernels& of(int device);
};

/// The kernels that move rows whose numbers are in device memory: collective/all_to_all/rows.cuh.
struct RowKernels {
  gpu::Function count = nullptr;
  gpu::Function move = nullptr;

  static const RowKernels& of(int device, int ranks);
};

/// The kernels of small reductions, for one type and one operation. All are null if packets hold no
/// element.
struct ReducingKernels {
  gpu::Function oneShot = nullptr;
  gpu::Function twoShot = nullptr;
  gpu::Function packets = nullptr;

  static const ReducingKernels& of(int device, int ranks, DataType type, ReduceKind op);
};

/// Returns the kernel of large reductions, collective/reduce/pipeline.cuh. It is apart because it
/// takes long to compile.
gpu::Function pipelineKernel(int device, int ranks, DataType type, ReduceKind op);

/// Returns the kernel of medium reductions, collective/reduce/lines.cuh.
gpu::Function linesKernel(int device, int ranks, DataType type, ReduceKind op);

/// Returns the kernel of collective/reduce_scatter/quantized.cuh, which is kept for ever.
gpu::Function quantizedKernel(int device, int ranks);

/// Returns a kernel that is compiled, or taken from the cache, and loaded for good. May be called
/// while a stream captures.
gpu::Function loadKernel(int device, const gpu::CompileRequest& request, const std::string& name);

/// Return the requests that compile the kernels for an architecture.
gpu::CompileRequest movingRequest(const std::string& architecture, int ranks);
gpu::CompileRequest signalsRequest(const std::string& architecture);
gpu::CompileRequest rowsRequest(const std::string& architecture, int ranks);
gpu::CompileRequest quantizedRequest(const std::string& architecture, int ranks);
gpu::CompileRequest reducingRequest(const std::string& architecture, int ranks, DataType type,
                                    ReduceKind op);
gpu::CompileRequest pipelineRequest(const std::string& architecture, int ranks, DataType type,
                                    ReduceKind op);
gpu::CompileRequest linesRequest(const std::string& architecture, int ranks, DataType type,
                                 ReduceKind op);

/// The names of a type and operation in device code.
struct DeviceReduction {
  const char* element;
  const char* op;
  size_t elementBytes;  ///< as the kernels count: a complex number may be two elements
  size_t perElement;

  /// Returns whether a packet holds an element.
  bool fitsPackets() const { return elementBytes <= 8; }
};
DeviceReduction deviceReduction(DataType type, ReduceKind op);

}  // namespace ctran
