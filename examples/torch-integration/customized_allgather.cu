// All-gather with a kernel of one's own, which asks the proxy to move the data. compile_native makes
// a Python module of it: see customized_allgather.py.

#include <Python.h>

#include <mscclpp/algorithm.hpp>
#include <mscclpp/core.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/port_channel.hpp>
#include <pybind11/pybind11.h>

#include <vector>

namespace py = pybind11;

// A thread for each of the other ranks.
__global__ void allgather(mscclpp::DeviceHandle<mscclpp::PortChannel>* channels, int rank,
                          size_t nbytesPerGPU) {
  mscclpp::DeviceHandle<mscclpp::PortChannel>& channel = channels[threadIdx.x];
  // The other's output may be written when it has come here, and not before.
  channel.signal();
  channel.wait();
  // My block to its place there; then wait for the other's.
  channel.putWithSignalAndFlush(rank * nbytesPerGPU, 0, nbytesPerGPU);
  channel.wait();
}

class AllgatherAlgoBuilder : public mscclpp::AlgorithmBuilder {
 public:
  std::shared_ptr<mscclpp::Algorithm> build() override {
    auto self = std::make_shared<AllgatherAlgoBuilder>();
    return std::make_shared<mscclpp::NativeAlgorithm>(
        "allgather", "allgather",
        [self](std::shared_ptr<mscclpp::Communicator> comm) { self->initialize(comm); },
        [self](const std::shared_ptr<void> ctx, const void* input, void* output, size_t inputSize,
               size_t outputSize, mscclpp::DataType dtype, mscclpp::ReduceOp op,
               cudaStream_t stream, int nBlocks, int nThreadsPerBlock,
               const std::unordered_map<std::string, uintptr_t>& extras) {
          return self->kernelFunc(ctx, input, output, inputSize, dtype, stream);
        },
        [self](std::shared_ptr<mscclpp::Communicator> comm, const void* input, void* output,
               size_t inputSize, size_t outputSize, mscclpp::DataType dtype) {
          return self->initContext(comm, input, output, inputSize, dtype);
        },
        [self](const void* input, void* output, size_t inputSize, size_t outputSize,
               mscclpp::DataType dtype, bool symmetricMemory) {
          return self->generateContextKey(input, output, inputSize, outputSize, dtype,
                                          symmetricMemory);
        });
  }

 private:
  // What calls with the same buffers have in common.
  struct Context {
    std::vector<mscclpp::PortChannel> channels;
    std::shared_ptr<mscclpp::DeviceHandle<mscclpp::PortChannel>[]> handles;
  };

  // Once for each communicator: connections to all others.
  void initialize(std::shared_ptr<mscclpp::Communicator> comm) {
    const int nRanks = comm->bootstrap()->getNranks();
    rank_ = comm->bootstrap()->getRank();
    std::vector<std::shared_future<mscclpp::Connection>> connections;
    for (int peer = 0; peer < nRanks; ++peer) {
      if (peer == rank_) continue;
      peers_.push_back(peer);
      connections.push_back(comm->connect(mscclpp::Transport::CudaIpc, peer));
    }
    proxy_ = std::make_shared<mscclpp::ProxyService>();
    for (auto& connection : connections) {
      semaphores_.push_back(proxy_->buildAndAddSemaphore(*comm, connection.get()));
    }
    proxy_->startProxy();
  }

  mscclpp::CommResult kernelFunc(const std::shared_ptr<void> ctx, const void* input, void* output,
                                 size_t inputSize, mscclpp::DataType dtype, cudaStream_t stream) {
    auto context = std::static_pointer_cast<Context>(ctx);
    char* own = static_cast<char*>(output) + rank_ * inputSize;
    if (own != input && cudaMemcpyAsync(own, input, inputSize, cudaMemcpyDeviceToDevice, stream)) {
      return mscclpp::CommResult::CommUnhandledCudaError;
    }
    if (!peers_.empty()) {
      allgather<<<1, peers_.size(), 0, stream>>>(context->handles.get(), rank_, inputSize);
    }
    return cudaGetLastError() == cudaSuccess ? mscclpp::CommResult::CommSuccess
                                             : mscclpp::CommResult::CommUnhandledCudaError;
  }

  // Once for each pair of buffers: channels from mine to the others' outputs.
  std::shared_ptr<void> initContext(std::shared_ptr<mscclpp::Communicator> comm, const void* input,
                                    void* output, size_t inputSize, mscclpp::DataType dtype) {
    const auto transport = mscclpp::Transport::CudaIpc;
    const size_t outputSize = inputSize * (peers_.size() + 1);
    auto source = comm->registerMemory(const_cast<void*>(input), inputSize, transport);
    auto target = comm->registerMemory(output, outputSize, transport);
    for (int peer : peers_) comm->sendMemory(target, peer);
    const mscclpp::MemoryId src = proxy_->addMemory(source);
    auto context = std::make_shared<Context>();
    std::vector<mscclpp::DeviceHandle<mscclpp::PortChannel>> handles;
    for (size_t i = 0; i < peers_.size(); ++i) {
      const mscclpp::MemoryId dst = proxy_->addMemory(comm->recvMemory(peers_[i]).get());
      context->channels.push_back(proxy_->portChannel(semaphores_[i], dst, src));
      handles.push_back(mscclpp::deviceHandle(context->channels.back()));
    }
    context->handles =
        mscclpp::gpuCallocShared<mscclpp::DeviceHandle<mscclpp::PortChannel>>(handles.size());
    mscclpp::gpuMemcpy(context->handles.get(), handles.data(), handles.size(),
                       cudaMemcpyHostToDevice);
    return context;
  }

  mscclpp::AlgorithmCtxKey generateContextKey(const void* input, void* output, size_t inputSize,
                                              size_t outputSize, mscclpp::DataType dtype,
                                              bool symmetricMemory) {
    return {const_cast<void*>(input), output, inputSize, outputSize, 0};
  }

  int rank_ = 0;
  std::vector<int> peers_;
  std::vector<mscclpp::SemaphoreId> semaphores_;
  std::shared_ptr<mscclpp::ProxyService> proxy_;
};

// A capsule that owns one reference to the algorithm.
PyObject* getCapsule(std::shared_ptr<mscclpp::Algorithm> algorithm) {
  auto* pointer = new std::shared_ptr<mscclpp::Algorithm>(std::move(algorithm));
  return PyCapsule_New(pointer, mscclpp::ALGORITHM_NATIVE_CAPSULE_NAME, [](PyObject* capsule) {
    delete static_cast<std::shared_ptr<mscclpp::Algorithm>*>(
        PyCapsule_GetPointer(capsule, mscclpp::ALGORITHM_NATIVE_CAPSULE_NAME));
  });
}

PYBIND11_MODULE(mscclpp_native, m) {
  m.def("create_allgather_algorithm", []() {
    auto builder = std::make_shared<AllgatherAlgoBuilder>();
    auto algo = builder->build();
    return py::reinterpret_steal<py::capsule>(getCapsule(algo));
  });
}
