// What goes wrong in algorithms, by the number of words of the message:
//   1: rank 1 returns an error while the others wait for it
//   2: rank 1 throws while the others wait for it
//   3: rank 1 waits for what never comes; the others are done at once
//   4: rank 1 is late, and then lets the others go on
//   5: rank 1 dies while the others wait for it
// Any other message is left as it is.

#include <csignal>
#include <stdexcept>
#include <thread>

#include <mscclpp/semaphore.hpp>

#include "module.h"

using Semaphore = mscclpp::MemoryDevice2DeviceSemaphore;
using Handle = mscclpp::DeviceHandle<Semaphore>;

__global__ void await(Handle* handle) { handle->wait(); }
__global__ void release(Handle* handle) { handle->signal(); }

struct Signals {
  explicit Signals(mscclpp::Communicator& communicator) : peers(communicator) {
    std::vector<Handle> all;
    for (const mscclpp::Connection& connection : peers.connections) {
      semaphores.push_back(std::make_shared<Semaphore>(communicator, connection));
      all.push_back(semaphores.back()->deviceHandle());
    }
    handles = module::onDevice(all);
  }

  module::Peers peers;
  std::vector<std::shared_ptr<Semaphore>> semaphores;
  std::shared_ptr<Handle[]> handles;
};

static std::shared_ptr<mscclpp::Algorithm> faulty() {
  using namespace mscclpp;
  return std::make_shared<NativeAlgorithm>(
      "faulty", "allreduce", nullptr,
      [](const std::shared_ptr<void> given, const void* input, void* output, size_t bytes, size_t,
         DataType, ReduceOp, cudaStream_t stream, int, int,
         const std::unordered_map<std::string, uintptr_t>&) {
        auto& context = *static_cast<Signals*>(given.get());
        const size_t words = bytes / 4;
        const bool isFaulty = context.peers.rank == 1;
        if (words == 1 && isFaulty) return CommResult::CommInternalError;
        if (words == 2 && isFaulty) throw std::runtime_error("no luck today");
        if (words == 4 && isFaulty) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          for (size_t p = 0; p < context.semaphores.size(); ++p) {
            release<<<1, 1, 0, stream>>>(context.handles.get() + p);
          }
        }
        if (words == 4 && !isFaulty) {
          const int toFaulty = context.peers.rank == 0 ? 0 : 1;
          await<<<1, 1, 0, stream>>>(context.handles.get() + toFaulty);
        }
        if (words == 5 && isFaulty) std::raise(SIGKILL);
        if (words <= 2 || words == 5 || (words == 3 && isFaulty)) {
          await<<<1, 1, 0, stream>>>(context.handles.get());
        }
        if (input != output) memcpy(output, input, bytes);
        return CommResult::CommSuccess;
      },
      [](std::shared_ptr<Communicator> communicator, const void*, void*, size_t, size_t,
         DataType) -> std::shared_ptr<void> { return std::make_shared<Signals>(*communicator); },
      [](const void*, void*, size_t, size_t, DataType, bool) { return AlgorithmCtxKey(); }, 4,
      4096);
}

PYBIND11_MODULE(faulty_all_reduce, m) {
  m.def("create",
        [] { return pybind11::reinterpret_steal<pybind11::capsule>(module::capsule(faulty())); });
}
