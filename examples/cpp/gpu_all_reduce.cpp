// All-reduces among GPUs from C++, without torch. One process per rank and GPU, all with the same
// directory, which is empty:
//
//     mkdir ranks
//     ./gpu_all_reduce 0 2 ranks & ./gpu_all_reduce 1 2 ranks
//
// CMakeLists.txt finds the package `ctran`: its headers and its library.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ctran/communicator.h"
#include "ctran/gpu.h"

namespace {

using namespace ctran::api;

constexpr size_t kCount = 1000;

void say(int rank, const std::string& text) {
  std::cout << "[rank " + std::to_string(rank) + "] " + text + "\n";
}

void run(int rank, int size, const std::string& directory) {
  CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.name = "example";
  options.store = openStore("file://" + directory);
  const int device = rank % gpuCount();
  const auto comm = Communicator::create(options);
  comm->useGpu({.device = device});

  OwnGpuStream stream(device);
  const std::shared_ptr<void> memory = allocateOnGpu(device, kCount * sizeof(float));
  const std::vector<float> values(kCount, static_cast<float>(rank + 1));
  stream.copy(memory.get(), values.data(), kCount * sizeof(float));
  const auto first = [&] {
    float value = 0;
    stream.read(&value, memory.get(), sizeof value);
    return std::to_string(value);
  };

  Call sum;
  sum.kind = ctran::CollectiveKind::AllReduce;
  sum.type = ctran::DataType::Float32;
  sum.op.kind = ctran::ReduceKind::Sum;
  sum.count = kCount;
  sum.input = sum.output = memory.get();  // in place

  // Runs behind the copy. The call returns at once; the operation keeps the memory.
  const EnqueueOptions enqueued{.timeout = std::chrono::seconds(30), .keepAlive = memory};
  const auto work = comm->enqueue(sum, stream.get(), enqueued);
  // What this stream does next comes after the operation. Another stream, or the host, has to wait:
  work->wait();  // the host; work->makeWait(other) is for a stream
  say(rank, "sum " + first());

  // A graph of the same operation, replayed twice.
  const auto replay = stream.capture([&] { comm->enqueue(sum, stream.get(), enqueued); });
  replay();
  replay();
  say(rank, "after two replays " + first());

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
