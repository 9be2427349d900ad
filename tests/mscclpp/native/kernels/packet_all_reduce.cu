// One-shot all-reduce: each rank sends all it has to all others as packets, and adds up in the order
// of ranks, so that all have the same bits. Two halves of the scratch take turns: who sends for call
// k + 2 has got the packets of call k + 1 from all, who had read those of call k before.

#include <mscclpp/memory_channel.hpp>

#include "module.h"

using Handle = mscclpp::DeviceHandle<mscclpp::MemoryChannel>;
using Packet = mscclpp::LL8Packet;
constexpr int kMostBlocks = 64;

template <class T>
__global__ void allReduce(Handle* handles, int peers, int rank, const T* input, T* output,
                          size_t words, uint32_t* flags, size_t half) {
  extern __shared__ Handle channels[];  // global memory is slow
  for (int p = threadIdx.x; p < peers; p += blockDim.x) channels[p] = handles[p];
  __syncthreads();
  const uint32_t flag = flags[blockIdx.x] + 1;
  const size_t first = blockIdx.x * blockDim.x + threadIdx.x;
  const size_t step = gridDim.x * blockDim.x;
  const size_t begin = flag % 2 * half;
  for (size_t i = first; i < words; i += step) {
    uint32_t word;
    memcpy(&word, input + i, 4);
    for (int p = 0; p < peers; ++p) {
      Packet* const slot = static_cast<Packet*>(channels[p].dst_) + begin + rank * words + i;
      slot->write(word, flag);
    }
  }
  for (size_t i = first; i < words; i += step) {
    T sum{};
    for (int r = 0; r <= peers; ++r) {
      T value = input[i];
      if (r != rank) {
        const uint32_t word = channels[0].template unpackPacket<Packet>(begin + r * words + i, flag);
        memcpy(&value, &word, 4);
      }
      sum = r == 0 ? value : sum + value;
    }
    output[i] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) flags[blockIdx.x] = flag;
  // The next call may have more blocks.
  for (int b = gridDim.x + first; b < kMostBlocks; b += step) flags[b] = flag;
}

struct Context {
  Context(mscclpp::Communicator& communicator, const void*, void*, size_t inputSize, size_t)
      : peers(communicator),
        half(inputSize / 4 * peers.size),
        scratch(2 * half * sizeof(Packet)),
        flags(mscclpp::gpuCallocShared<uint32_t>(kMostBlocks)) {
    const auto own = communicator.registerMemory(scratch.data(), scratch.bytes(),
                                                 mscclpp::Transport::CudaIpc);
    const auto others = peers.exchange(communicator, own);
    std::vector<Handle> all;
    for (size_t p = 0; p < peers.ranks.size(); ++p) {
      const auto semaphore = std::make_shared<mscclpp::MemoryDevice2DeviceSemaphore>(
          communicator, peers.connections[p]);
      channels.emplace_back(semaphore, others[p], own, scratch.data());
      all.push_back(channels.back().deviceHandle());
    }
    handles = module::onDevice(all);
  }

  template <class T>
  void launch(const void* input, void* output, size_t bytes, cudaStream_t stream, int nBlocks,
              int nThreads) {
    const int count = static_cast<int>(peers.ranks.size());
    allReduce<T><<<nBlocks, nThreads, count * sizeof(Handle), stream>>>(
        handles.get(), count, peers.rank, static_cast<const T*>(input), static_cast<T*>(output),
        bytes / 4, flags.get(), half);
  }

  void run(const void* input, void* output, size_t bytes, mscclpp::DataType dtype,
           cudaStream_t stream, int nBlocks, int nThreads) {
    const int blocks = nBlocks > 0 ? nBlocks : 2;
    const int threads = nThreads > 0 ? nThreads : 64;
    if (dtype == mscclpp::DataType::FLOAT32) {
      launch<float>(input, output, bytes, stream, blocks, threads);
    } else {
      launch<int32_t>(input, output, bytes, stream, blocks, threads);
    }
  }

  module::Peers peers;
  const size_t half;  // packets
  mscclpp::GpuBuffer<char> scratch;
  std::shared_ptr<uint32_t[]> flags;
  std::vector<mscclpp::MemoryChannel> channels;
  std::shared_ptr<Handle[]> handles;
};

PYBIND11_MODULE(packet_all_reduce, m) {
  m.def("create", [] {
    return pybind11::reinterpret_steal<pybind11::capsule>(
        module::capsule(module::algorithm<Context>("packet_all_reduce", "allreduce")));
  });
}
