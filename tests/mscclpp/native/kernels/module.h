// What the modules of these tests have in common: an algorithm from a few functions, as a capsule.
#pragma once

#include <Python.h>

#include <memory>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>
#include <mscclpp/algorithm.hpp>
#include <mscclpp/gpu_utils.hpp>

namespace module {

/// `Context(communicator, input, output, inputSize, outputSize)`, and its
/// `run(input, output, inputSize, dtype, stream, nBlocks, nThreads)`.
template <class Context>
std::shared_ptr<mscclpp::Algorithm> algorithm(const char* name, const char* collective) {
  using namespace mscclpp;
  return std::make_shared<NativeAlgorithm>(
      name, collective, nullptr,
      [](const std::shared_ptr<void>& context, const void* input, void* output, size_t inputSize,
         size_t, DataType dtype, ReduceOp, cudaStream_t stream, int nBlocks, int nThreads,
         const Extras&, DataType) {
        std::static_pointer_cast<Context>(context)->run(input, output, inputSize, dtype, stream,
                                                        nBlocks, nThreads);
        return cudaGetLastError() == cudaSuccess ? CommResult::CommSuccess
                                                 : CommResult::CommUnhandledCudaError;
      },
      [](std::shared_ptr<Communicator> communicator, const void* input, void* output,
         size_t inputSize, size_t outputSize, DataType) -> std::shared_ptr<void> {
        return std::make_shared<Context>(*communicator, input, output, inputSize, outputSize);
      },
      [](const void* input, void* output, size_t inputSize, size_t outputSize, DataType, bool) {
        return AlgorithmCtxKey{const_cast<void*>(input), output, inputSize, outputSize, 0};
      },
      1, 1 << 30, CollectiveBufferMode::Any,
      std::unordered_map<std::string, uint64_t>{{"default", 0}, {"tested", 7}});
}

inline PyObject* capsule(std::shared_ptr<mscclpp::Algorithm> made) {
  auto* pointer = new std::shared_ptr<mscclpp::Algorithm>(std::move(made));
  return PyCapsule_New(pointer, mscclpp::ALGORITHM_NATIVE_CAPSULE_NAME, [](PyObject* object) {
    delete static_cast<std::shared_ptr<mscclpp::Algorithm>*>(
        PyCapsule_GetPointer(object, mscclpp::ALGORITHM_NATIVE_CAPSULE_NAME));
  });
}

/// The ranks but this one, and connections to them.
struct Peers {
  explicit Peers(mscclpp::Communicator& communicator)
      : rank(communicator.bootstrap()->getRank()), size(communicator.bootstrap()->getNranks()) {
    std::vector<std::shared_future<mscclpp::Connection>> futures;
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      ranks.push_back(r);
      futures.push_back(communicator.connect(mscclpp::Transport::CudaIpc, r));
    }
    for (auto& future : futures) connections.push_back(future.get());
  }

  /// Their memories, for which they get this one.
  std::vector<mscclpp::RegisteredMemory> exchange(mscclpp::Communicator& communicator,
                                                  const mscclpp::RegisteredMemory& own) const {
    for (int r : ranks) communicator.sendMemory(own, r);
    std::vector<mscclpp::RegisteredMemory> memories;
    for (int r : ranks) memories.push_back(communicator.recvMemory(r).get());
    return memories;
  }

  const int rank;
  const int size;
  std::vector<int> ranks;
  std::vector<mscclpp::Connection> connections;
};

/// A copy for kernels.
template <class T>
std::shared_ptr<T[]> onDevice(const std::vector<T>& values) {
  auto copy = mscclpp::gpuCallocShared<T>(values.size());
  mscclpp::gpuMemcpy(copy.get(), values.data(), values.size(), cudaMemcpyHostToDevice);
  return copy;
}

}  // namespace module
