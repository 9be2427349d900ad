// Kernels that Python launches, with channels that Python made.

#include <mscclpp/memory_channel_device.hpp>
#include <mscclpp/port_channel_device.hpp>
#include <mscclpp/switch_channel_device.hpp>

using Memory = mscclpp::MemoryChannelDeviceHandle;
using Signals = mscclpp::BaseMemoryChannelDeviceHandle;

// Block b writes this rank's bytes to the same place of peer b's memory.
extern "C" __global__ void gather(Memory* channels, int rank, size_t bytes) {
  Memory& channel = channels[blockIdx.x];
  if (threadIdx.x == 0) {  // the peer has come: its memory may be written
    channel.signal();
    channel.wait();
  }
  __syncthreads();
  channel.put(rank * bytes, bytes, threadIdx.x, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    channel.signal();
    channel.wait();
  }
}

// The same by the proxy: a thread for each peer.
extern "C" __global__ void gather_by_proxy(mscclpp::PortChannelDeviceHandle* channels, int peers,
                                           int rank, size_t bytes) {
  const int p = static_cast<int>(threadIdx.x);
  if (p >= peers) return;
  channels[p].signal();
  channels[p].wait();
  channels[p].putWithSignalAndFlush(rank * bytes, rank * bytes, bytes);
  channels[p].wait();
}

// Adds up the words of all ranks, in their order: each sends its own as packets to its place in the
// scratch of all others.
extern "C" __global__ void add_by_packets(Memory* channels, int peers, int rank, uint32_t* data,
                                          size_t words, uint32_t flag) {
  using Packet = mscclpp::LL8Packet;
  for (int p = 0; p < peers; ++p) {
    channels[p].putPackets<Packet>(rank * words * sizeof(Packet), 0, words * 4, threadIdx.x,
                                   blockDim.x, flag);
  }
  __syncthreads();  // the data has been read
  for (size_t i = threadIdx.x; i < words; i += blockDim.x) {
    uint32_t sum = 0;
    for (int r = 0; r <= peers; ++r) {
      sum += r == rank ? data[i] : channels[0].unpackPacket<Packet>(r * words + i, flag);
    }
    data[i] = sum;
  }
}

// Adds up the buffers of a switch channel: each rank its part, which it stores to all.
extern "C" __global__ void add_by_switch(mscclpp::SwitchChannelDeviceHandle channel,
                                         Signals* signals, int peers, int rank, size_t count) {
  const auto meet = [&] {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < peers) {
      signals[threadIdx.x].signal();
      signals[threadIdx.x].wait();
    }
    __syncthreads();
  };
  meet();
  const size_t part = (count + peers) / (peers + 1);
  for (size_t i = threadIdx.x; i < part && rank * part + i < count; i += blockDim.x) {
    channel.broadcast(rank * part + i, channel.reduce<float>(rank * part + i));
  }
  meet();
}

extern "C" __global__ void wait_once(Signals* signals) {
  if (threadIdx.x == 0) signals[0].wait();
}

template <int Factor>
__global__ void scale(float* data, int count, float offset) {
  extern __shared__ float copy[];
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    copy[i] = data[i];
    data[i] = copy[i] * Factor + offset;
  }
}
