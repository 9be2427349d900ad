// Collectives of ranks in processes of their own, each as if on a host of its own, over the device,
// and of two ranks in two machines.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "ctran/memory/shared_allocation.h"
#include "ctran/window/window.h"
#include "tests/unit/support/cases.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

void runAll(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  for (const Kind kind : kKinds) {
    for (const size_t count : {size_t{5}, size_t{1000}, size_t{100'000}}) {
      Case c;
      c.kind = kind;
      c.count = count;
      c.root = isRooted(kind) ? size - 1 : 0;
      c.whole = true;
      c.seed = count + static_cast<uint64_t>(kind);
      Inputs inputs;
      for (int r = 0; r < size; ++r) inputs.push_back(inputsOf(c, r, size));
      const Buffers buffers(c, rank, size, inputs[rank]);
      communicator.run(buffers.collective());
      EXPECT_EQ(buffers.check(expectedOf(c, rank, size, inputs)), "") << c.describe();
    }
  }
}

/// A message of int32 to or from the other rank of two.
Collective message(CollectiveKind kind, int32_t* data, size_t count, int peer) {
  Collective c;
  c.kind = kind;
  c.count = count;
  c.type = DataType::Int32;
  c.root = peer;
  if (kind == Kind::Send) {
    c.input = reinterpret_cast<std::byte*>(data);
  } else {
    c.output = reinterpret_cast<std::byte*>(data);
  }
  return c;
}

/// Memory that is unmapped, and mapped again at its address, has another key: through the old one a
/// device reads pages that nobody has any more.
TEST(Placed, MemoryThatIsMappedAgainIsNotReadThroughItsOldKey) {
  constexpr size_t kCount = 100'000;
  std::string folder = "/run/ctran-placed-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ForkedRanks ranks(2, [&](int rank) {
    CommunicatorOptions options = optionsFor(rank, 2, std::make_shared<DirectoryStore>(folder));
    options.hints["ctran::host"] = "host" + std::to_string(rank);
    const auto communicator = Communicator::create(options);
    const void* first = nullptr;
    int again = 0;
    for (int32_t round = 0; round < 30; ++round) {
      const auto memory = SharedAllocation::allocate(kCount * sizeof(int32_t));
      again += memory->data() == first;
      first = memory->data();
      auto* const values = reinterpret_cast<int32_t*>(memory->data());
      for (size_t i = 0; i < kCount; ++i) {
        values[i] = rank == 0 ? static_cast<int32_t>(i) + round : -1;
      }
      communicator->run(message(rank == 0 ? Kind::Send : Kind::Recv, values, kCount, 1 - rank));
      size_t right = 0;
      while (right < kCount && values[right] == static_cast<int32_t>(right) + round) ++right;
      ASSERT_EQ(right, kCount) << "round " << round;
    }
    EXPECT_GT(again, 10) << "the test has not seen what it is for";
    const std::string path =
        communicator->explain(Kind::AllReduce, 1000, DataType::Int32).network.front();
    if (rank == 0) {
      EXPECT_NE(path.find("sent without a copy"), std::string::npos) << path;
    }
    Case last;
    last.kind = Kind::Barrier;
    communicator->run(Buffers(last, rank, 2, {}).collective());
  });
  ranks.expectSuccess();
  std::filesystem::remove_all(folder);
}

class Collectives : public ::testing::TestWithParam<int> {};

TEST_P(Collectives, GoOverRdma) {
  const int size = GetParam();
  // The machine's other files cannot be written.
  std::string folder = "/run/ctran-collectives-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ForkedRanks ranks(size, [&](int rank) {
    CommunicatorOptions options = optionsFor(rank, size, std::make_shared<DirectoryStore>(folder));
    options.hints["ctran::host"] = "host" + std::to_string(rank);
    const auto communicator = Communicator::create(options);
    // Pairs change over while calls go on; then all of them have.
    for (int i = 0; i < 2; ++i) runAll(*communicator);
    for (const std::string& path :
         communicator->explain(Kind::AllReduce, 1000, DataType::Int32).network) {
      EXPECT_NE(path.find(": RDMA (rxe0:1)"), std::string::npos) << path;
    }
    Case last;
    last.kind = Kind::Barrier;
    communicator->run(Buffers(last, rank, size, {}).collective());
  });
  ranks.expectSuccess();
  std::filesystem::remove_all(folder);
}

/// With the number of this machine of two, which a network joins: see run.py.
class TwoMachines : public ::testing::TestWithParam<int> {};

std::vector<int> machineOfTwo() {
  const char* const number = ::getenv("MACHINE_OF_TWO");
  if (number == nullptr) return {};
  return {std::atoi(number)};
}

TEST_P(TwoMachines, CollectivesGoOverRdma) {
  const int rank = GetParam();
  const auto communicator = Communicator::create(
      optionsFor(rank, 2, std::make_shared<DirectoryStore>("/run/both"), "collectives"));
  for (int i = 0; i < 2; ++i) runAll(*communicator);
  for (const std::string& path :
       communicator->explain(Kind::AllReduce, 1000, DataType::Int32).network) {
    EXPECT_NE(path.find(": RDMA (rxe0:1)"), std::string::npos) << path;
  }
  communicator->finalize();
}

/// That the device has sent so far.
uint64_t packets() {
  std::ifstream file("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts");
  uint64_t count = 0;
  EXPECT_TRUE(file >> count);
  return count;
}

TEST_P(TwoMachines, WindowsGoOverRdma) {
  constexpr size_t kBytes = 200'000, kPacketBytes = 1024;
  constexpr int kRounds = 20;
  const int rank = GetParam();
  const uint64_t before = packets();
  const auto communicator = Communicator::create(
      optionsFor(rank, 2, std::make_shared<DirectoryStore>("/run/both"), "windows"));
  const auto exposed = SharedAllocation::allocate(kBytes), own = SharedAllocation::allocate(kBytes);
  const std::span<std::byte> memory(exposed->data(), kBytes), buffer(own->data(), kBytes);
  const auto window = Window::create(*communicator, memory, {.signalWords = 1});
  for (int round = 0; round < kRounds; ++round) {
    const auto valueOf = [&](int of, size_t i) {
      return static_cast<std::byte>(101 * of + 7 * round + static_cast<int>(i % 251));
    };
    for (size_t i = 0; i < kBytes; ++i) buffer[i] = valueOf(rank, i);
    Window::finish(window->put(1 - rank, 0, buffer));
    Window::finish(window->signal(1 - rank));
    std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
    Window::finish(window->get(1 - rank, 0, buffer));
    Window::finish(window->waitSignal(1 - rank));
    for (size_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(buffer[i], valueOf(rank, i)) << i;
      ASSERT_EQ(memory[i], valueOf(1 - rank, i)) << i;
    }
    communicator->run({});  // nobody puts the next before all have looked
  }
  window->close();
  // What is put, and what the other end gets; less what went over TCP until the pair had RDMA.
  EXPECT_GT(packets() - before, kRounds * kBytes / kPacketBytes);
  communicator->finalize();
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TwoMachines);
INSTANTIATE_TEST_SUITE_P(Machine, TwoMachines, ::testing::ValuesIn(machineOfTwo()));

INSTANTIATE_TEST_SUITE_P(Of, Collectives, ::testing::Values(2, 3),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace
}  // namespace ctran::testing
