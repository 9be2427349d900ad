#include "tests/mscclpp/native/ranks.h"

#include <atomic>
#include <cstdlib>

namespace mscclpp::testing {
namespace {

void runWorld(int size, bool onHosts, const std::function<void(Communicator&)>& body) {
  static std::atomic<int> worlds{0};
  const int world = worlds.fetch_add(1);
  const auto run = [&](const std::string& store, int rank) {
    if (onHosts && !kThreadSanitizer) {
      ::setenv("CTRAN_HOST", ("host" + std::to_string(rank)).c_str(), 1);
    }
    const auto bootstrap = std::make_shared<TcpBootstrap>(rank, size);
    bootstrap->initializeByStore(store, 100);
    Communicator communicator(bootstrap);
    body(communicator);
    bootstrap->barrier();
  };
  if (kThreadSanitizer) {
    const std::string store = "memory://world" + std::to_string(world);
    ctran::testing::runThreads(size, [&](int rank) { run(store, rank); });
  } else {
    const ctran::testing::TemporaryDirectory directory;
    ForkedRanks(size, [&](int rank) { run("file://" + directory.path(), rank); }).expectSuccess();
  }
}

}  // namespace

void runRanks(int size, const std::function<void(Communicator&)>& body) {
  runWorld(size, false, body);
}

void runHosts(int size, const std::function<void(Communicator&)>& body) {
  runWorld(size, true, body);
}

std::vector<Connection> connectAll(Communicator& communicator, const EndpointConfig& config) {
  const int size = communicator.bootstrap()->getNranks();
  const int rank = communicator.bootstrap()->getRank();
  std::vector<std::shared_future<Connection>> futures(size);
  for (int r = 0; r < size; ++r) {
    if (r != rank) futures[r] = communicator.connect(config, r);
  }
  std::vector<Connection> connections(size);
  for (int r = 0; r < size; ++r) {
    if (r != rank) connections[r] = futures[r].get();
  }
  return connections;
}

std::vector<RegisteredMemory> exchange(Communicator& communicator, const RegisteredMemory& own) {
  const int size = communicator.bootstrap()->getNranks();
  const int rank = communicator.bootstrap()->getRank();
  std::vector<RegisteredMemory> all(size);
  for (int r = 0; r < size; ++r) {
    if (r != rank) communicator.sendMemory(own, r);
  }
  for (int r = 0; r < size; ++r) all[r] = r == rank ? own : communicator.recvMemory(r).get();
  return all;
}

void gatherByProxy(DeviceHandle<PortChannel>* handles, int peers, int rank, size_t bytes) {
  const unsigned p = threadIdx.x;
  if (p >= static_cast<unsigned>(peers)) return;
  handles[p].signal();  // what was there before has been read
  handles[p].wait();
  handles[p].putWithSignalAndFlush(static_cast<uint64_t>(rank) * bytes, 0, bytes);
  handles[p].wait();
}

std::string errorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace mscclpp::testing
