#pragma once

#include <string>

#include "ctran/base/data_type.h"
#include "ctran/base/reduce_op.h"
#include "ctran/gpu/driver.h"
#include "ctran/gpu/nvrtc.h"

namespace ctran {

/// The kernels that move data among so many ranks, on one device.
struct MovingKernels {
  gpu::Function lanes = nullptr;  ///< these three: collective/exchange/lanes.cuh
  gpu::Function chains = nullptr;
  gpu::Function writeTransfers = nullptr;
  gpu::Function packets = nullptr;      ///< collective/exchange/packets.cuh
  gpu::Function waitForCopy = nullptr;  ///< these three: collective/exchange/copy_signals.cuh
  gpu::Function signalCopy = nullptr;
  gpu::Function meet = nullptr;

  /// Loaded, and if need be compiled, at the first call in this process; kept for ever.
  static const MovingKernels& of(int device, int ranks);
};

/// Those of windows' signals: window/signals.cuh.
struct SignalKernels {
  gpu::Function send = nullptr;
  gpu::Function await = nullptr;

  static const SignalKernels& of(int device);
};

/// Those that move rows whose numbers are in device memory: collective/all_to_all/rows.cuh.
struct RowKernels {
  gpu::Function count = nullptr;
  gpu::Function move = nullptr;

  static const RowKernels& of(int device, int ranks);
};

/// The kernels of a reduction of little: one type, one operation. All null if packets hold no
/// element.
struct ReducingKernels {
  gpu::Function oneShot = nullptr;
  gpu::Function twoShot = nullptr;
  gpu::Function packets = nullptr;

  static const ReducingKernels& of(int device, int ranks, DataType type, ReduceKind op);
};

/// The one of a reduction of much, collective/reduce/pipeline.cuh; apart, as it takes long to
/// compile.
gpu::Function pipelineKernel(int device, int ranks, DataType type, ReduceKind op);

/// The one of neither little nor much, collective/reduce/lines.cuh.
gpu::Function linesKernel(int device, int ranks, DataType type, ReduceKind op);

/// collective/reduce_scatter/quantized.cuh, kept for ever.
gpu::Function quantizedKernel(int device, int ranks);

/// A kernel that is compiled, or taken from the cache, and loaded for good. May be called while a
/// stream captures.
gpu::Function loadKernel(int device, const gpu::CompileRequest& request, const std::string& name);

/// How they are compiled, for an architecture.
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

/// What the device code calls them.
struct DeviceReduction {
  const char* element;
  const char* op;
  size_t elementBytes;  ///< as the kernels count: a complex number may be two elements
  size_t perElement;

  /// Whether a packet holds an element.
  bool fitsPackets() const { return elementBytes <= 8; }
};
DeviceReduction deviceReduction(DataType type, ReduceKind op);

}  // namespace ctran
