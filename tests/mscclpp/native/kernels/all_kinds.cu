// Each collective that native algorithms serve, for each way of placing buffers. A rank copies its
// input into memory that the others see, and takes from theirs what it needs.

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

#include <pybind11/stl.h>

#include "module.h"

using mscclpp::DataType;
using mscclpp::ReduceOp;

static std::atomic<int> contexts{0};

struct Shown {
  Shown(std::shared_ptr<mscclpp::Communicator> made, size_t bytes)
      : communicator(std::move(made)), peers(*communicator), shown(bytes) {
    ++contexts;
    own = communicator->registerMemory(shown.data(), bytes, mscclpp::Transport::CudaIpc);
    others = peers.exchange(*communicator, own);
  }
  ~Shown() { --contexts; }

  const char* of(int rank) const {
    if (rank == peers.rank) return shown.data();
    return static_cast<const char*>(others[rank < peers.rank ? rank : rank - 1].data());
  }

  std::shared_ptr<mscclpp::Communicator> communicator;  // which the algorithm keeps alive by that
  module::Peers peers;
  mscclpp::GpuBuffer<char> shown;
  mscclpp::RegisteredMemory own;
  std::vector<mscclpp::RegisteredMemory> others;
};

template <class T>
static void combine(T* into, const char* from, size_t bytes, ReduceOp op) {
  for (size_t i = 0; i < bytes / sizeof(T); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    switch (op) {
      case ReduceOp::SUM:
        into[i] += value;
        break;
      case ReduceOp::MAX:
        into[i] = std::max(into[i], value);
        break;
      default:
        throw std::runtime_error("it was not asked for this reduction");
    }
  }
}

static void combine(char* into, const char* from, size_t bytes, DataType type, ReduceOp op) {
  switch (type) {
    case DataType::INT32:
      return combine(reinterpret_cast<int32_t*>(into), from, bytes, op);
    case DataType::FLOAT32:
      return combine(reinterpret_cast<float*>(into), from, bytes, op);
    case DataType::FLOAT64:
      return combine(reinterpret_cast<double*>(into), from, bytes, op);
    case DataType::UINT8:
      return combine(reinterpret_cast<uint8_t*>(into), from, bytes, op);
    default:
      throw std::runtime_error("it was not asked for this type");
  }
}

static void run(Shown& context, const std::string& kind, const void* input, void* output,
                size_t inputBytes, size_t outputBytes, DataType type, ReduceOp op, int root) {
  const int rank = context.peers.rank, size = context.peers.size;
  char* const out = static_cast<char*>(output);
  std::memcpy(context.shown.data(), input, inputBytes);
  context.communicator->bootstrap()->barrier();
  for (int r = 0; r < size; ++r) {
    const size_t block = kind == "reducescatter" ? outputBytes : inputBytes / size;
    if (kind == "allgather") std::memcpy(out + r * inputBytes, context.of(r), inputBytes);
    if (kind == "alltoall") std::memcpy(out + r * block, context.of(r) + rank * block, block);
    if (kind == "broadcast" && r == root) std::memcpy(out, context.of(r), outputBytes);
    if (kind != "allreduce" && kind != "reducescatter") continue;
    const char* const from = context.of(r) + (kind == "reducescatter" ? rank * block : 0);
    if (r == 0) {
      std::memcpy(out, from, outputBytes);
    } else {
      combine(out, from, outputBytes, type, op);
    }
  }
  context.communicator->bootstrap()->barrier();
}

static std::shared_ptr<mscclpp::Algorithm> make(const std::string& kind, int mode) {
  using namespace mscclpp;
  return std::make_shared<NativeAlgorithm>(
      kind + std::to_string(mode), kind, nullptr,
      [kind](const std::shared_ptr<void>& context, const void* input, void* output,
             size_t inputSize, size_t outputSize, DataType type, ReduceOp op, cudaStream_t, int,
             int, const Extras& extras, DataType) {
        const auto root = extras.find("root");
        run(*std::static_pointer_cast<Shown>(context), kind, input, output, inputSize, outputSize,
            type, op, root == extras.end() ? -1 : static_cast<int>(root->second));
        return CommResult::CommSuccess;
      },
      [](std::shared_ptr<Communicator> communicator, const void*, void*, size_t inputSize, size_t,
         DataType) -> std::shared_ptr<void> {
        return std::make_shared<Shown>(std::move(communicator), inputSize);
      },
      [](const void*, void*, size_t inputSize, size_t, DataType, bool) {
        return AlgorithmCtxKey{nullptr, nullptr, inputSize, 0, 0};
      },
      0, 1 << 20, static_cast<CollectiveBufferMode>(mode));
}

PYBIND11_MODULE(all_kinds, m) {
  m.def("contexts", [] { return contexts.load(); });
  m.def("create", [](const std::string& kind, int mode) {
    return pybind11::reinterpret_steal<pybind11::capsule>(module::capsule(make(kind, mode)));
  });
}
