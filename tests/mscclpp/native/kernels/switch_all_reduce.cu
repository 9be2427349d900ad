// All-reduce through a switch channel: each rank reduces its part of all buffers, and stores it to
// all. Copies in and out, as any memory is passed.

#include <mscclpp/concurrency_device.hpp>
#include <mscclpp/memory_channel.hpp>
#include <mscclpp/switch_channel.hpp>

#include "module.h"

using Signals = mscclpp::DeviceHandle<mscclpp::BaseMemoryChannel>;

__device__ void meet(Signals* signals, int peers, mscclpp::DeviceSyncer* syncer) {
  syncer->sync(gridDim.x);
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < peers) {
    signals[threadIdx.x].signal();
    signals[threadIdx.x].wait();
  }
  syncer->sync(gridDim.x);
}

__global__ void allReduce(mscclpp::DeviceHandle<mscclpp::SwitchChannel> channel, Signals* signals,
                          int peers, int rank, mscclpp::DeviceSyncer* syncer, const float* input,
                          float* output, size_t count) {
  const size_t first = blockIdx.x * blockDim.x + threadIdx.x;
  const size_t step = gridDim.x * blockDim.x;
  float* const own = static_cast<float*>(channel.devicePtr);
  for (size_t i = first; i < count; i += step) own[i] = input[i];
  meet(signals, peers, syncer);
  // My part, in units of four.
  const size_t units = (count + 3) / 4;
  const size_t part = (units + peers) / (peers + 1);
  const size_t begin = rank * part;
  const size_t end = begin + part < units ? begin + part : units;
  for (size_t i = begin + first; i < end; i += step) {
    channel.broadcast(i, channel.reduce<mscclpp::f32x4>(i));
  }
  meet(signals, peers, syncer);
  for (size_t i = first; i < count; i += step) output[i] = own[i];
  meet(signals, peers, syncer);  // the others have read what the next call writes
}

struct Context {
  Context(mscclpp::Communicator& communicator, const void*, void*, size_t inputSize, size_t)
      : peers(communicator),
        buffer((inputSize + 15) / 16 * 16),
        syncer(mscclpp::gpuCallocShared<mscclpp::DeviceSyncer>()) {
    std::vector<int> everyone;
    for (int r = 0; r < peers.size; ++r) everyone.push_back(r);
    // Not owned: it lives as long as the communicator's algorithm does.
    const std::shared_ptr<mscclpp::Communicator> borrowed(&communicator,
                                                          [](mscclpp::Communicator*) {});
    const auto connection = mscclpp::connectNvlsCollective(borrowed, everyone, buffer.bytes());
    channel = connection->bindAllocatedMemory(reinterpret_cast<CUdeviceptr>(buffer.data()),
                                              buffer.bytes());
    std::vector<Signals> all;
    for (const auto& to : peers.connections) {
      bases.emplace_back(std::make_shared<mscclpp::MemoryDevice2DeviceSemaphore>(communicator, to));
      all.push_back(bases.back().deviceHandle());
    }
    signals = module::onDevice(all);
  }

  void run(const void* input, void* output, size_t bytes, mscclpp::DataType, cudaStream_t stream,
           int nBlocks, int nThreads) {
    allReduce<<<nBlocks > 0 ? nBlocks : 2, nThreads > 0 ? nThreads : 32, 0, stream>>>(
        channel.deviceHandle(), signals.get(), static_cast<int>(peers.ranks.size()), peers.rank,
        syncer.get(), static_cast<const float*>(input), static_cast<float*>(output), bytes / 4);
  }

  module::Peers peers;
  mscclpp::GpuBuffer<char> buffer;
  std::shared_ptr<mscclpp::DeviceSyncer[]> syncer;
  mscclpp::SwitchChannel channel;
  std::vector<mscclpp::BaseMemoryChannel> bases;
  std::shared_ptr<Signals[]> signals;
};

PYBIND11_MODULE(switch_all_reduce, m) {
  m.def("create", [] {
    return pybind11::reinterpret_steal<pybind11::capsule>(
        module::capsule(module::algorithm<Context>("switch_all_reduce", "allreduce")));
  });
}
