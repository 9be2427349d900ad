// An all-reduce from C++. One process per rank, all with the same file, which must not exist yet:
//
//     ./all_reduce 0 2 /tmp/ranks & ./all_reduce 1 2 /tmp/ranks
//
// CMakeLists.txt finds the headers and libraries of torch and torchcomms.

#include <ATen/ATen.h>

#include <comms/torchcomms/TorchComm.hpp>
#include <cstdlib>
#include <iostream>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

using torch::comms::CommOptions;
using torch::comms::OpName;
using torch::comms::PreHookArgs;
using torch::comms::ReduceOp;
using torch::comms::TorchComm;

namespace {

void run(int rank, int size, const std::string& file) {
  CommOptions options;
  options.rank = rank;
  options.size = size;
  options.store = c10::make_intrusive<c10d::FileStore>(file, size);
  const std::shared_ptr<TorchComm> comm =
      torch::comms::new_comm("ctran", at::Device(at::kCPU), "example", options);

  // A hook is called before every operation from now on.
  int operations = 0;
  comm->registerPreHook([&](OpName, uint64_t, const PreHookArgs&) { ++operations; });

  // Synchronous: the result is there when the call returns.
  at::Tensor tensor = at::full({4}, rank + 1.0);
  comm->all_reduce(tensor, ReduceOp::SUM, /*async_op=*/false);
  std::cout << "[rank " + std::to_string(rank) + "] sum " +
                   std::to_string(tensor[0].item<double>()) + "\n";

  // Asynchronous: other work can be done until wait().
  at::Tensor largest = at::full({4}, rank);
  const auto work = comm->all_reduce(largest, ReduceOp::MAX, /*async_op=*/true);
  work->wait();
  std::cout << "[rank " + std::to_string(rank) + "] max " +
                   std::to_string(largest[0].item<double>()) + "\n";

  std::cout << "[rank " + std::to_string(rank) + "] operations " + std::to_string(operations) +
                   "\n";

  comm->finalize();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " RANK SIZE FILE\n";
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
