// All-gather through the proxy, in chunks, each by a block: n - 1 puts of each chunk per rank.

#include <mscclpp/concurrency_device.hpp>
#include <mscclpp/port_channel.hpp>

#include "module.h"

using Handle = mscclpp::DeviceHandle<mscclpp::PortChannel>;

__global__ void allGather(Handle* channels, int peers, int rank, size_t bytes,
                          mscclpp::DeviceSyncer* syncer) {
  const int thread = threadIdx.x;
  if (blockIdx.x == 0 && thread < peers) {  // the others' outputs may be written
    channels[thread].signal();
    channels[thread].wait();
  }
  syncer->sync(gridDim.x);
  const size_t chunk = (bytes + gridDim.x - 1) / gridDim.x;
  const size_t begin = blockIdx.x * chunk < bytes ? blockIdx.x * chunk : bytes;
  const size_t length = bytes - begin < chunk ? bytes - begin : chunk;
  if (thread < peers && length > 0) {
    channels[thread].put(rank * bytes + begin, begin, length);
  }
  syncer->sync(gridDim.x);
  if (blockIdx.x == 0 && thread < peers) {
    channels[thread].signal();
    channels[thread].wait();
    channels[thread].flush();
  }
}

struct Context {
  Context(mscclpp::Communicator& communicator, const void* input, void* output, size_t inputSize,
          size_t outputSize)
      : peers(communicator), syncer(mscclpp::gpuCallocShared<mscclpp::DeviceSyncer>()) {
    const auto transport = mscclpp::Transport::CudaIpc;
    const auto outputs =
        peers.exchange(communicator, communicator.registerMemory(output, outputSize, transport));
    const auto source = proxy.addMemory(
        communicator.registerMemory(const_cast<void*>(input), inputSize, transport));
    std::vector<Handle> all;
    for (size_t p = 0; p < peers.ranks.size(); ++p) {
      const auto semaphore = proxy.buildAndAddSemaphore(communicator, peers.connections[p]);
      all.push_back(
          proxy.portChannel(semaphore, proxy.addMemory(outputs[p]), source).deviceHandle());
    }
    handles = module::onDevice(all);
    proxy.startProxy();
  }

  void run(const void* input, void* output, size_t inputSize, mscclpp::DataType,
           cudaStream_t stream, int nBlocks, int) {
    char* const own = static_cast<char*>(output) + peers.rank * inputSize;
    if (own != input) cudaMemcpyAsync(own, input, inputSize, cudaMemcpyDeviceToDevice, stream);
    allGather<<<nBlocks > 0 ? nBlocks : 2, 32, 0, stream>>>(
        handles.get(), static_cast<int>(peers.ranks.size()), peers.rank, inputSize, syncer.get());
  }

  module::Peers peers;
  std::shared_ptr<mscclpp::DeviceSyncer[]> syncer;
  mscclpp::ProxyService proxy{16};
  std::shared_ptr<Handle[]> handles;
};

PYBIND11_MODULE(port_all_gather, m) {
  m.def("create", [] {
    return pybind11::reinterpret_steal<pybind11::capsule>(
        module::capsule(module::algorithm<Context>("port_all_gather", "allgather")));
  });
}
