// Ranks that read each other's memory, where they may not.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <span>
#include <vector>

#include "ctran/bootstrap/local_store.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

/// Memory that the system reads for nobody else, as it is with memory that a driver has mapped.
class Secret {
 public:
  explicit Secret(size_t bytes) : bytes_(bytes) {
    constexpr long kMemfdSecret = 447;  // the same on all processors; older headers lack it
    const auto fd = static_cast<int>(::syscall(kMemfdSecret, 0));
    if (fd < 0) return;
    if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
      data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    ::close(fd);
  }
  ~Secret() {
    if (exists()) ::munmap(data_, bytes_);
  }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  bool exists() const { return data_ != MAP_FAILED; }
  std::span<int32_t> numbers() const {
    return {static_cast<int32_t*>(data_), bytes_ / sizeof(int32_t)};
  }

 private:
  size_t bytes_;
  void* data_ = MAP_FAILED;
};

constexpr int kRanks = 3;
constexpr int kSecretive = 1;
constexpr size_t kCount = 5000;  // of a block
constexpr int32_t kUntouched = -1;

int32_t given(int rank, size_t i) { return static_cast<int32_t>(rank * 100'003 + i * 7); }

/// Element `i` of the result on `rank`.
int32_t expected(Kind kind, int rank, size_t i) {
  const size_t block = i / kCount;
  int32_t sum = 0;
  switch (kind) {
    case Kind::AllGather:
      return given(static_cast<int>(block), i % kCount);
    case Kind::Broadcast:
      return given(kSecretive, i);
    case Kind::AllToAll:
      return given(static_cast<int>(block), rank * kCount + i % kCount);
    case Kind::Scatter:
      return given(kSecretive, rank * kCount + i);
    case Kind::Reduce:
      if (rank != kSecretive) return kUntouched;
      [[fallthrough]];
    case Kind::AllReduce:
      for (int r = 0; r < kRanks; ++r) sum += given(r, i);
      return sum;
    case Kind::ReduceScatter:
      for (int r = 0; r < kRanks; ++r) sum += given(r, rank * kCount + i);
      return sum;
    default:
      return kUntouched;
  }
}

void check(Communicator& communicator, Kind kind, std::span<int32_t> input,
           std::span<int32_t> output) {
  const int rank = communicator.rank();
  if (input.data() != output.data()) std::fill(output.begin(), output.end(), kUntouched);
  for (size_t i = 0; i < input.size(); ++i) input[i] = given(rank, i);
  Collective call;
  call.kind = kind;
  call.type = DataType::Int32;
  call.count = kCount;
  if (hasRoot(kind)) call.root = kSecretive;
  if (kind == Kind::Broadcast && rank == call.root) output = input;
  call.input = reinterpret_cast<const std::byte*>(input.data());
  call.output = reinterpret_cast<std::byte*>(output.data());
  communicator.run(call);
  const bool one = kind != Kind::AllGather && kind != Kind::AllToAll;
  for (size_t i = 0; i < (one ? kCount : kRanks * kCount); ++i) {
    ASSERT_EQ(output[i], expected(kind, rank, i)) << nameOf(kind) << ", element " << i;
  }
}

TEST(Pull, LendsCopiesOfMemoryThatNobodyMayRead) {
  constexpr size_t kBytes = kRanks * kCount * sizeof(int32_t);
  const Secret input(kBytes), output(kBytes);
  if (!input.exists() || !output.exists()) GTEST_SKIP() << "this system has no such memory";
  const auto store = std::make_shared<MemoryStore>();
  runThreads(kRanks, [&](int rank) {
    CommunicatorOptions options = optionsFor(rank, kRanks, store);
    options.hints["ctran::algorithm"] = "pull";
    const auto communicator = Communicator::create(options);
    std::vector<int32_t> ownInput(kRanks * kCount), ownOutput(kRanks * kCount);
    const bool secret = rank == kSecretive;
    const std::span<int32_t> in = secret ? input.numbers() : ownInput;
    const std::span<int32_t> out = secret ? output.numbers() : ownOutput;
    Collective barrier;
    barrier.kind = Kind::Barrier;
    communicator->run(barrier);  // now all know whether they can read at all
    for (const Kind kind : {Kind::Broadcast, Kind::AllGather, Kind::ReduceScatter, Kind::AllReduce,
                            Kind::AllToAll, Kind::Scatter, Kind::Reduce}) {
      check(*communicator, kind, in, out);
    }
    check(*communicator, Kind::AllReduce, in, in);
    check(*communicator, Kind::AllToAll, in, in);
    if (rank == kSecretive) {
      check(*communicator, Kind::Reduce, in, in);
    } else {
      check(*communicator, Kind::Reduce, in, out);
    }
    communicator->finalize();
  });
}

}  // namespace
}  // namespace ctran::testing
