#include "ctran/collective/gpu/kernels.h"

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "ctran/base/error.h"
#include "ctran/trace/preparation.h"

namespace ctran {
namespace {

const char* elementOf(DataType type) {
  switch (type) {
    case DataType::Bool:
      return "Boolean";
    case DataType::Int8:
      return "i8";
    case DataType::Int16:
      return "i16";
    case DataType::Int32:
      return "i32";
    case DataType::Int64:
      return "i64";
    case DataType::UInt8:
      return "u8";
    case DataType::UInt16:
      return "u16";
    case DataType::UInt32:
      return "u32";
    case DataType::UInt64:
      return "u64";
    case DataType::Float8E4M3:
      return "Float8E4M3";
    case DataType::Float8E5M2:
      return "Float8E5M2";
    case DataType::Float16:
      return "Float16";
    case DataType::BFloat16:
      return "BFloat16";
    case DataType::Float32:
      return "f32";
    case DataType::Float64:
      return "f64";
    case DataType::Complex64:
      return "Complex64";
    case DataType::Complex128:
      return "Complex128";
    default:
      throw Error(ErrorKind::InvalidArgument,
                  "type " + std::string(nameOf(type)) + " can be moved, but not reduced");
  }
}

const char* deviceOperationOf(ReduceKind op) {
  switch (op) {
    case ReduceKind::Sum:
      return "Sum";
    case ReduceKind::Product:
      return "Product";
    case ReduceKind::Min:
      return "Min";
    case ReduceKind::Max:
      return "Max";
    case ReduceKind::BitAnd:
      return "BitAnd";
    case ReduceKind::BitOr:
      return "BitOr";
    case ReduceKind::BitXor:
      return "BitXor";
    case ReduceKind::Avg:
      return "Avg";
    case ReduceKind::PremulSum:
      return "PremulSum";
  }
  throw Error(ErrorKind::InvalidArgument, "no such reduction");
}

/// Relaxed, so that a first call may come while a stream captures.
class LoadingMode {
 public:
  LoadingMode() { gpu::Driver::get().threadExchangeStreamCaptureMode(&mode_); }
  ~LoadingMode() { gpu::Driver::get().threadExchangeStreamCaptureMode(&mode_); }
  LoadingMode(const LoadingMode&) = delete;
  LoadingMode& operator=(const LoadingMode&) = delete;

 private:
  gpu::CaptureMode mode_ = gpu::CaptureMode::Relaxed;
};

gpu::Module loadModule(int device, const gpu::CompileRequest& request) {
  const Preparation preparation;
  const std::string image = gpu::compile(request);
  const gpu::DeviceGuard guard(device);
  const LoadingMode mode;
  gpu::Module module = nullptr;
  gpu::check(gpu::Driver::get().moduleLoadData(&module, image.data()), "cuModuleLoadData");
  return module;
}

gpu::Function find(gpu::Module module, const char* name) {
  gpu::Function function = nullptr;
  gpu::check(gpu::Driver::get().moduleGetFunction(&function, module, name), name);
  return function;
}

/// Calls `make` once per process and key, and keeps what it returns for ever. Every call site has
/// its own results. A thread that asks for the key of its last call takes no lock.
template <class Make, class... Key>
const auto& once(const Make& make, Key... key) {
  using Made = decltype(make());
  static std::mutex mutex;
  static auto& known = *new std::map<std::tuple<Key...>, Made>;
  static thread_local std::pair<std::tuple<Key...>, const Made*> last{};
  const std::tuple wanted(key...);
  if (last.second != nullptr && last.first == wanted) return *last.second;
  const std::lock_guard lock(mutex);
  auto found = known.find(wanted);
  if (found == known.end()) found = known.emplace(wanted, make()).first;
  last = {wanted, &found->second};
  return found->second;
}

gpu::CompileRequest reductionRequest(const char* kind, const char* source,
                                     const std::string& architecture, int ranks,
                                     const DeviceReduction& reduction) {
  return {std::string(kind) + "-" + reduction.element + "-" + reduction.op,
          source,
          architecture,
          {std::string("CTRAN_ELEMENT=") + reduction.element,
           std::string("CTRAN_OP=") + reduction.op, "CTRAN_RANKS=" + std::to_string(ranks)}};
}

}  // namespace

gpu::Function loadKernel(int device, const gpu::CompileRequest& request, const std::string& name) {
  return find(loadModule(device, request), name.c_str());
}

DeviceReduction deviceReduction(DataType type, ReduceKind op) {
  const size_t bytes = sizeOf(type);
  if (type == DataType::Bool) {
    switch (op) {
      case ReduceKind::Sum:
      case ReduceKind::Max:
        return {"Boolean", "BitOr", 1, 1};
      case ReduceKind::Product:
      case ReduceKind::Min:
        return {"Boolean", "BitAnd", 1, 1};
      default:
        return {"Boolean", deviceOperationOf(op), 1, 1};
    }
  }
  // But for products, complex numbers are reduced part by part.
  if (type == DataType::Complex64 && op != ReduceKind::Product) {
    return {"f32", deviceOperationOf(op), 4, 2};
  }
  if (type == DataType::Complex128 && op != ReduceKind::Product) {
    return {"f64", deviceOperationOf(op), 8, 2};
  }
  return {elementOf(type), deviceOperationOf(op), bytes, 1};
}

gpu::CompileRequest movingRequest(const std::string& architecture, int ranks) {
  return {"exchange",
          "#include \"ctran/collective/exchange/copy_signals.cuh\"\n"
          "#include \"ctran/collective/exchange/flows.cuh\"\n"
          "#include \"ctran/collective/exchange/packets.cuh\"\n",
          architecture,
          {"CTRAN_RANKS=" + std::to_string(ranks)}};
}

gpu::CompileRequest signalsRequest(const std::string& architecture) {
  return {"signals", "#include \"ctran/window/signals.cuh\"\n", architecture, {"CTRAN_SIGNALS"}};
}

gpu::CompileRequest rowsRequest(const std::string& architecture, int ranks) {
  return {"exchange-rows",
          "#include \"ctran/collective/all_to_all/rows.cuh\"\n",
          architecture,
          {"CTRAN_RANKS=" + std::to_string(ranks)}};
}

gpu::CompileRequest quantizedRequest(const std::string& architecture, int ranks) {
  return {"reduce-quantized",
          "#include \"ctran/collective/reduce_scatter/quantized.cuh\"\n",
          architecture,
          {"CTRAN_RANKS=" + std::to_string(ranks)}};
}

gpu::CompileRequest reducingRequest(const std::string& architecture, int ranks, DataType type,
                                    ReduceKind op) {
  return reductionRequest("reduce-packets",
                          "#include \"ctran/collective/all_reduce/one_shot.cuh\"\n"
                          "#include \"ctran/collective/all_reduce/two_shot.cuh\"\n"
                          "#include \"ctran/collective/reduce/packets.cuh\"\n",
                          architecture, ranks, deviceReduction(type, op));
}

gpu::CompileRequest pipelineRequest(const std::string& architecture, int ranks, DataType type,
                                    ReduceKind op) {
  return reductionRequest("reduce", "#include \"ctran/collective/reduce/pipeline.cuh\"\n",
                          architecture, ranks, deviceReduction(type, op));
}

gpu::CompileRequest linesRequest(const std::string& architecture, int ranks, DataType type,
                                 ReduceKind op) {
  return reductionRequest("reduce-lines", "#include \"ctran/collective/reduce/lines.cuh\"\n",
                          architecture, ranks, deviceReduction(type, op));
}

const MovingKernels& MovingKernels::of(int device, int ranks) {
  return once(
      [&] {
        const gpu::Module module =
            loadModule(device, movingRequest(gpu::architecture(device), ranks));
        return MovingKernels{.flows = find(module, "ctranExchange"),
                             .chains = find(module, "ctranExchangeChains"),
                             .writeTransfers = find(module, "ctranWriteTransfers"),
                             .packets = find(module, "ctranExchangePackets"),
                             .waitForCopy = find(module, "ctranWaitForCopy"),
                             .signalCopy = find(module, "ctranSignalCopy"),
                             .meet = find(module, "ctranMeet")};
      },
      device, ranks);
}

const SignalKernels& SignalKernels::of(int device) {
  return once(
      [&] {
        const gpu::Module module = loadModule(device, signalsRequest(gpu::architecture(device)));
        return SignalKernels{find(module, "ctranSignal"), find(module, "ctranAwaitSignal")};
      },
      device);
}

const RowKernels& RowKernels::of(int device, int ranks) {
  return once(
      [&] {
        const gpu::Module module =
            loadModule(device, rowsRequest(gpu::architecture(device), ranks));
        return RowKernels{find(module, "ctranCountRows"), find(module, "ctranMoveRows")};
      },
      device, ranks);
}

const ReducingKernels& ReducingKernels::of(int device, int ranks, DataType type, ReduceKind op) {
  return once(
      [&]() -> ReducingKernels {
        if (!deviceReduction(type, op).fitsPackets()) return {};
        const gpu::Module module =
            loadModule(device, reducingRequest(gpu::architecture(device), ranks, type, op));
        return {find(module, "ctranAllReduceOneShot"), find(module, "ctranAllReduceTwoShot"),
                find(module, "ctranReducePackets")};
      },
      device, ranks, type, op);
}

gpu::Function pipelineKernel(int device, int ranks, DataType type, ReduceKind op) {
  return once(
      [&] {
        return loadKernel(device, pipelineRequest(gpu::architecture(device), ranks, type, op),
                          "ctranReducePipeline");
      },
      device, ranks, type, op);
}

gpu::Function linesKernel(int device, int ranks, DataType type, ReduceKind op) {
  return once(
      [&] {
        return loadKernel(device, linesRequest(gpu::architecture(device), ranks, type, op),
                          "ctranReduceLines");
      },
      device, ranks, type, op);
}

gpu::Function quantizedKernel(int device, int ranks) {
  return once(
      [&] {
        return loadKernel(device, quantizedRequest(gpu::architecture(device), ranks),
                          "ctranReduceQuantized");
      },
      device, ranks);
}

}  // namespace ctran
