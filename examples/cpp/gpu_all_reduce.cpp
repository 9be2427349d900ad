// All-reduces among GPUs from C++, without torch. One process per rank and GPU, all with the same
// directory, which is empty:
//
//     mkdir ranks
//     ./gpu_all_reduce 0 2 ranks & ./gpu_all_reduce 1 2 ranks
//
// CMakeLists.txt finds the headers and the library of the engine.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/gpu_communicator.h"
#include "ctran/gpu/memory.h"

namespace {

namespace gpu = ctran::gpu;
using std::chrono::seconds;

constexpr size_t kCount = 1000;

void say(int rank, const std::string& text) {
  std::cout << "[rank " + std::to_string(rank) + "] " + text + "\n";
}

/// The first element, once `stream` has come here.
float readFirst(gpu::DevicePtr memory, gpu::Stream stream) {
  const gpu::Driver& driver = gpu::Driver::get();
  float value = 0;
  gpu::check(driver.memcpyDtoHAsync(&value, memory, sizeof value, stream), "copying to the host");
  gpu::check(driver.streamSynchronize(stream), "waiting for a stream");
  return value;
}

void run(int rank, int size, const std::string& directory) {
  // The ranks meet in a communicator of the CPU, which the one of the GPUs takes over.
  ctran::CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.name = "example";
  options.store = std::make_shared<ctran::DirectoryStore>(directory);
  const int device = rank % gpu::deviceCount();
  const auto comm =
      ctran::GpuCommunicator::create(ctran::Communicator::create(options), {.device = device});

  const gpu::Driver& driver = gpu::Driver::get();
  const gpu::ActiveDevice active(comm->runtime(), device);
  const gpu::OwnStream stream(comm->runtime(), device, /*highPriority=*/false);
  const auto memory = std::make_shared<gpu::DeviceMemory>(
      gpu::DeviceMemory::allocate(device, kCount * sizeof(float)));
  const std::vector<float> values(kCount, static_cast<float>(rank + 1));
  gpu::check(driver.memcpyHtoDAsync(memory->address(), values.data(), kCount * sizeof(float),
                                    stream.get()),
             "copying to the device");

  ctran::Collective sum;
  sum.kind = ctran::CollectiveKind::AllReduce;
  sum.type = ctran::DataType::Float32;
  sum.op = {ctran::ReduceKind::Sum};
  sum.count = kCount;
  sum.output = reinterpret_cast<std::byte*>(memory->address());
  sum.input = sum.output;  // in place

  // Runs behind the copy. The call returns at once; the operation keeps the memory.
  const ctran::EnqueueOptions enqueued{.timeout = seconds(30), .keepAlive = [&] { return memory; }};
  const auto work = comm->enqueue(sum, stream.get(), enqueued);
  // What this stream does next comes after the operation. Another stream, or the host, has to wait:
  work->wait();  // the host; work->makeWait(other) is for a stream
  say(rank, "sum " + std::to_string(readFirst(memory->address(), stream.get())));

  // A graph of the same operation, replayed twice.
  gpu::Graph graph = nullptr;
  gpu::GraphExec executable = nullptr;
  gpu::check(driver.streamBeginCapture(stream.get(), gpu::CaptureMode::Global), "capturing");
  comm->enqueue(sum, stream.get(), enqueued);
  gpu::check(driver.streamEndCapture(stream.get(), &graph), "capturing");
  gpu::check(driver.graphInstantiate(&executable, graph, 0), "making a graph");
  for (int replay = 0; replay < 2; ++replay) {
    gpu::check(driver.graphLaunch(executable, stream.get()), "launching a graph");
  }
  say(rank, "after two replays " + std::to_string(readFirst(memory->address(), stream.get())));
  gpu::check(driver.graphExecDestroy(executable), "destroying a graph");
  gpu::check(driver.graphDestroy(graph), "destroying a graph");

  comm->finalize();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " RANK SIZE DIRECTORY\n";
    return 2;
  }
  try {
    run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
