// Every collective on every kind of data, size and memory, against the reference.
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "ctran/bootstrap/local_store.h"
#include "ctran/collective/registry.h"
#include "ctran/select/plans.h"
#include "ctran/transport/shm/arena.h"
#include "tests/unit/support/cases.h"
#include "tests/unit/support/pairwise.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

/// Counts around everything at which the way of moving changes.
std::vector<size_t> countsFor(DataType type, int size) {
  const size_t element = sizeOf(type);
  std::set<size_t> counts{0, 1, 2, 3, 7, 33};
  const size_t slot = Arena::kSlotDataBytes, ring = Arena::kRoundBytes;
  for (const size_t bytes : {size_t{64}, slot / size, slot, 65536 / static_cast<size_t>(size),
                             size_t{16384}, size_t{131072}, ring / size * 3 + 64, ring}) {
    const size_t count = bytes / element;
    counts.insert({count == 0 ? 0 : count - 1, count, count + 1});
  }
  return {counts.begin(), counts.end()};
}

/// What takes long: several megabytes, beyond all buffers.
std::vector<size_t> largeCountsFor(DataType type) {
  const size_t element = sizeOf(type);
  if (kSanitizer) {
    return {(size_t{1} << 20) / element + 5};
  }
  return {(size_t{1} << 20) / element + 5, (size_t{5} << 20) / element - 3};
}

/// Turns indices into a call that makes sense.
Case makeCase(int size, size_t kind, size_t type, size_t op, size_t count, size_t flags,
              uint64_t seed) {
  Case c;
  c.kind = kKinds[kind];
  c.type = static_cast<DataType>(type);
  c.op.kind = static_cast<ReduceKind>(op);
  c.seed = seed;
  if (reduces(c.kind)) {
    if (c.type >= DataType::Opaque1) c.type = static_cast<DataType>(mix(seed) % 17);
    if (!isSupported(c.op.kind, c.type)) c.op.kind = ReduceKind::Sum;
  }
  const auto counts = countsFor(c.type, size);
  const auto large = largeCountsFor(c.type);
  c.count = count < 64 ? counts[count % counts.size()] : large[count % large.size()];
  c.root = isRooted(c.kind) ? static_cast<int>(mix(seed + 1) % size) : 0;
  c.inPlace = flags & 1;
  c.listed = flags >> 1 & 1;
  c.posted = flags >> 2 & 1;
  c.misalignment = flags >> 3 & 1 ? 1 + mix(seed + 2) % 12 : 0;
  return c;
}

constexpr size_t kFlags = 16;
constexpr size_t kCounts = 28;  // at most so many of countsFor

std::vector<Case> sample(int size) {
  std::vector<Case> cases;
  const auto rows = pairwise({std::size(kKinds), kDataTypeCount, kReduceKindCount, kCounts, kFlags},
                             static_cast<uint64_t>(size));
  // Sanitizers are slow, and do not look at the values.
  const size_t stride = kThreadSanitizer ? 6 : kAddressSanitizer ? 3 : 1;
  for (size_t i = 0; i < rows.size(); i += stride) {
    const auto& row = rows[i];
    cases.push_back(makeCase(size, row[0], row[1], row[2], row[3], row[4], cases.size() + 1));
  }
  for (size_t kind = 1; kind < std::size(kKinds); ++kind) {
    const size_t type = mix(kind * 31 + size) % kDataTypeCount;
    for (size_t i = 0; i < largeCountsFor(DataType::Float32).size(); ++i) {
      cases.push_back(makeCase(size, kind, type, mix(kind + size) % kReduceKindCount, 64 + i,
                               mix(kind * 7 + size + i) % kFlags, cases.size() + 1));
    }
  }
  return cases;
}

std::vector<Case> product(int size) {
  std::vector<Case> cases;
  for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
    const size_t ops = reduces(kKinds[kind]) ? kReduceKindCount : 1;
    for (size_t type = 0; type < kDataTypeCount; ++type) {
      for (size_t op = 0; op < ops; ++op) {
        for (size_t count = 0; count < kCounts; ++count) {
          // All flags with some count each; the pairs of the sample have the rest.
          for (size_t flags = count % 4; flags < kFlags; flags += 4) {
            cases.push_back(makeCase(size, kind, type, op, count, flags, cases.size() + 1));
          }
        }
      }
    }
  }
  return cases;
}

using Placing = std::function<void(int rank, CommunicatorOptions&)>;

/// As runRanks, where `place` says on which host a rank is.
void runPlaced(int size, const Placing& place, const std::function<void(Communicator&)>& body) {
  const auto store = std::make_shared<MemoryStore>();
  runThreads(size, [&](int rank) {
    auto options = optionsFor(rank, size, store);
    if (place) place(rank, options);
    const auto communicator = Communicator::create(options);
    body(*communicator);
    communicator->finalize();
  });
}

/// Runs the cases one after another on all ranks, with a look at the results after each.
void runCases(int size, const std::vector<Case>& cases, const Placing& place = nullptr) {
  Inputs inputs(size);
  std::optional<std::vector<std::vector<std::byte>>> shared;  // what all ranks get alike
  std::atomic<int> wrong{0};
  std::barrier together(size);
  runPlaced(size, place, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    for (const Case& c : cases) {
      inputs[rank] = inputsOf(c, rank, size);
      const Buffers buffers(c, rank, size, inputs[rank]);
      try {
        if (c.posted) {
          communicator.post(buffers.collective())->wait();
        } else {
          communicator.run(buffers.collective());
        }
      } catch (const Error& error) {
        ADD_FAILURE() << c.describe() << " on rank " << rank << ": " << error.what();
        ++wrong;
      }
      together.arrive_and_wait();
      const bool alike = c.kind == CollectiveKind::AllReduce;
      if (alike && rank == 0) shared = expectedOf(c, rank, size, inputs);
      if (alike) together.arrive_and_wait();
      const std::string found = buffers.check(alike ? *shared : expectedOf(c, rank, size, inputs));
      if (!found.empty()) {
        ADD_FAILURE() << c.describe() << " on rank " << rank << " of " << size << ": " << found;
        ++wrong;
      }
      together.arrive_and_wait();
      if (wrong > 10) return;  // the rest would say the same
    }
  });
}

class Matrix : public ::testing::TestWithParam<int> {};

TEST_P(Matrix, EveryCollectiveGivesWhatTheReferenceGives) {
  const int size = GetParam();
  runCases(size, testsEverything() ? product(size) : sample(size));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Matrix, ::testing::Values(1, 2, 3, 4, 7, 8),
                         [](const auto& size) { return "Of" + std::to_string(size.param); });

bool isNative(CollectiveKind kind, std::string_view name) {
  return findAlgorithm(AlgorithmPlace::SharedMemory, kind, name) != nullptr;
}

/// Each algorithm of one host, also where another one would be chosen; and those that a plan of the
/// library stands in for.
class MatrixOf : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(MatrixOf, AnAlgorithmGivesWhatTheReferenceGives) {
  const auto [algorithm, size] = GetParam();
  std::vector<size_t> sizes{0, 4, 600, 20'000, 130'000, 400'000};
  // The race detector is slow, and sees all that there is in two pieces of the largest kind.
  if (kThreadSanitizer) {
    sizes.push_back(700'000);
  } else {
    sizes.push_back(1'500'000);
    if (!kAddressSanitizer) sizes.push_back(1'500'001);
  }
  std::vector<Case> cases;
  for (size_t kind = 1; kind < std::size(kKinds); ++kind) {
    const bool native = isNative(kKinds[kind], algorithm);
    if (!native && !libraryPlan(kKinds[kind], algorithm, size)) continue;
    for (const size_t bytes : sizes) {
      Case c = makeCase(size, kind, static_cast<size_t>(DataType::Float32), 0, 1,
                        mix(kind + bytes) % kFlags, cases.size() + 1);
      c.count = bytes == 0 ? 0 : bytes / sizeof(float) + 1;
      if (bytes > 1'000'000) c.inPlace = bytes % 2 == 0;
      c.whole = !native;  // partial sums are added in another order
      cases.push_back(c);
    }
  }
  const bool needsPowerOfTwo = std::string_view(algorithm) == "recursive_halving";
  EXPECT_EQ(cases.empty(), needsPowerOfTwo && size == 5);
  runCases(size, cases, [&, name = algorithm](int, CommunicatorOptions& options) {
    options.hints["ctran::algorithm"] = name;
  });
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, MatrixOf,
    ::testing::Combine(::testing::Values("step", "direct", "two_phase", "rounds", "pull", "ring",
                                         "halving_doubling", "recursive_doubling",
                                         "recursive_halving", "bruck", "binomial",
                                         "scatter_all_gather"),
                       ::testing::Values(2, 4, 5)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "Of" + std::to_string(std::get<1>(info.param));
    });

/// What one call leaves behind in the rings must not look like the data of the next one, of
/// whatever size it is: also none.
TEST(SharedMemoryAlgorithms, OfAllSizesAfterOneAnother) {
  for (const char* algorithm : {"step", "direct", "two_phase", "rounds", "pull"}) {
    for (const int size : {2, 5}) {
      std::vector<Case> cases;
      for (uint64_t seed = 1; seed <= (kThreadSanitizer ? 100 : 400); ++seed) {
        const size_t kind = 1 + mix(seed) % (std::size(kKinds) - 1);
        if (!isNative(kKinds[kind], algorithm)) continue;
        Case c = makeCase(size, kind, static_cast<size_t>(DataType::Float32), 0, 1,
                          mix(seed + 7) % kFlags, seed);
        constexpr size_t kCounts[] = {0, 0, 3, 300, 4096, 20'000};
        c.count = kCounts[mix(seed + 11) % std::size(kCounts)];
        cases.push_back(c);
      }
      SCOPED_TRACE(algorithm);
      runCases(size, cases, [=](int, CommunicatorOptions& options) {
        options.hints["ctran::algorithm"] = algorithm;
      });
    }
  }
}

/// Who sees another rank come has not seen its data yet.
TEST(Algorithms, OfSmallCallsThatBeginAtTheSameTime) {
  for (const CollectiveKind kind : kKinds) {
    using Kind = CollectiveKind;
    if (kind == Kind::Barrier || kind == Kind::AllGatherV || kind == Kind::ReduceScatterV ||
        kind == Kind::AllToAllV) {
      continue;
    }
    const auto test = [=](int size, const std::string& algorithm, int ranksPerHost, int calls) {
      const auto store = std::make_shared<MemoryStore>();
      runThreads(size, [&](int rank) {
        CommunicatorOptions options = optionsFor(rank, size, store);
        if (!algorithm.empty()) options.hints["ctran::algorithm"] = algorithm;
        if (ranksPerHost > 0) options.hints["ctran::host"] = std::to_string(rank / ranksPerHost);
        EXPECT_EQ(wrongOfSmallCalls(*Communicator::create(options), kind, calls), 0)
            << nameOf(kind) << ' ' << algorithm << ' ' << ranksPerHost;
      });
    };
    for (const Algorithm* one : algorithmsOf(AlgorithmPlace::SharedMemory, kind)) {
      test(2, std::string(one->name), 0, 5'000);
    }
    test(2, "", 1, 1'000);
    test(3, "", 2, 300);
  }
}

/// Ranks on several hosts: `hosts[r]` is that of rank r.
struct Spread {
  const char* name;
  std::vector<int> hosts;
  std::map<std::string, std::string> hints = {};
};

class MatrixOfHosts : public ::testing::TestWithParam<Spread> {};

TEST_P(MatrixOfHosts, EveryCollectiveGivesWhatTheReferenceGives) {
  const Spread& spread = GetParam();
  const auto size = static_cast<int>(spread.hosts.size());
  std::vector<Case> cases = testsEverything() ? product(size) : sample(size);
  if (!testsEverything()) {
    // What differs by data type alone is the same code as over shared memory.
    std::vector<Case> some;
    const size_t stride = size > 4 ? 5 : 3;
    for (size_t i = size % stride; i < cases.size(); i += stride) some.push_back(cases[i]);
    cases.swap(some);
  }
  // Sums are in the order of the ranks only where each host has one, or where that is asked for.
  const bool ordered =
      spread.hints.count("ctran::deterministic") > 0 ||
      std::set<int>(spread.hosts.begin(), spread.hosts.end()).size() == spread.hosts.size();
  for (Case& c : cases) c.whole = !ordered;
  runCases(size, cases, [&](int rank, CommunicatorOptions& options) {
    options.hints = spread.hints;
    options.hints["ctran::host"] = "host" + std::to_string(spread.hosts[rank]);
  });
}

INSTANTIATE_TEST_SUITE_P(With, MatrixOfHosts,
                         ::testing::Values(Spread{"OneRankEach", {0, 1, 2}},
                                           Spread{"TwoRanksEach", {0, 0, 1, 1}},
                                           Spread{"FourRanksEach", {0, 0, 0, 0, 1, 1, 1, 1}},
                                           Spread{"RanksInTurns", {0, 1, 2, 0, 1, 2}},
                                           Spread{"UnevenRanks", {0, 0, 0, 1, 2}},
                                           Spread{"UnevenRanksInAnyOrder", {0, 1, 1, 0, 1, 2, 2}},
                                           Spread{"RankOrder",
                                                  {0, 0, 1, 1, 1},
                                                  {{"ctran::deterministic", "rank_order"}}}),
                         [](const auto& spread) { return spread.param.name; });

/// Every algorithm between hosts by its name, in any size of world.
using Named = std::pair<CollectiveKind, std::string_view>;

std::vector<Named> everyNamed() {
  std::vector<Named> all;
  for (const CollectiveKind kind : kKinds) {
    for (const Algorithm* one : algorithmsOf(AlgorithmPlace::Network, kind)) {
      all.emplace_back(kind, one->name);
    }
  }
  return all;
}

class NamedAlgorithm : public ::testing::TestWithParam<int> {};

/// Many in one communicator each: all of one rank of the list are named at once.
TEST_P(NamedAlgorithm, GivesWhatTheReferenceGives) {
  const int size = GetParam();
  constexpr DataType kTypes[] = {DataType::Float32, DataType::Int16, DataType::Float64,
                                 DataType::Complex64, DataType::UInt8};
  constexpr ReduceKind kOps[] = {ReduceKind::Sum, ReduceKind::Avg, ReduceKind::Max,
                                 ReduceKind::PremulSum};
  std::vector<std::vector<Named>> turns;  // with each collective once
  for (const Named& named : everyNamed()) {
    const auto fits = [&](const std::vector<Named>& turn) {
      return std::none_of(turn.begin(), turn.end(),
                          [&](const Named& other) { return other.first == named.first; });
    };
    auto turn = std::find_if(turns.begin(), turns.end(), fits);
    if (turn == turns.end()) turn = turns.insert(turns.end(), std::vector<Named>{});
    turn->push_back(named);
  }
  for (const auto& turn : turns) {
    std::string hint;
    std::vector<Case> cases;
    for (const auto& [kind, name] : turn) {
      hint += (hint.empty() ? "" : ",") + std::string(nameOf(kind)) + "=" + std::string(name);
      for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{1000}, size_t{40'001}}) {
        const uint64_t seed = cases.size() + 1;
        Case c;
        c.kind = kind;
        c.count = count;
        c.type = kTypes[seed % std::size(kTypes)];
        c.op.kind = kOps[mix(seed) % std::size(kOps)];
        if (!isSupported(c.op.kind, c.type)) c.op.kind = ReduceKind::Sum;
        c.root = isRooted(kind) ? static_cast<int>(seed % size) : 0;
        c.inPlace = mix(seed) >> 8 & 1;
        c.listed = mix(seed) >> 9 & 1;
        c.posted = mix(seed) >> 10 & 1;
        c.misalignment = seed % 3;
        c.seed = seed;
        c.whole = true;
        cases.push_back(c);
      }
    }
    runCases(size, cases, [&](int rank, CommunicatorOptions& options) {
      options.hints["ctran::algorithm"] = hint;
      options.hints["ctran::host"] = "host" + std::to_string(rank);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, NamedAlgorithm, ::testing::Values(2, 3, 4, 6, 7),
                         [](const auto& size) { return "Of" + std::to_string(size.param); });

/// With many ranks the thresholds move, and shares become as small as they get.
class ManyRanks : public ::testing::TestWithParam<int> {};

TEST_P(ManyRanks, EveryCollectiveGivesWhatTheReferenceGives) {
  const int size = GetParam();
  std::vector<Case> cases;
  for (size_t kind = 0; kind < std::size(kKinds); ++kind) {
    const size_t element = sizeOf(DataType::Int32);
    for (const size_t bytes : {size_t{4}, size_t{8} * 1024 / size, size_t{20} * 1024}) {
      Case c = makeCase(size, kind, static_cast<size_t>(DataType::Int32), 0, 1, kind % kFlags,
                        cases.size() + 1);
      c.count = bytes / element + 1;
      cases.push_back(c);
    }
  }
  runCases(size, cases);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ManyRanks, ::testing::Values(16, 33, 64),
                         [](const auto& size) { return "Of" + std::to_string(size.param); });

TEST(Pairwise, EveryPairOccurs) {
  const std::vector<size_t> sizes{3, 5, 2, 7};
  std::set<std::vector<size_t>> pairs;
  const auto rows = pairwise(sizes, 1);
  for (const auto& row : rows) {
    for (size_t p = 0; p < sizes.size(); ++p) {
      ASSERT_LT(row[p], sizes[p]);
      for (size_t q = p + 1; q < sizes.size(); ++q) pairs.insert({p, q, row[p], row[q]});
    }
  }
  EXPECT_EQ(pairs.size(), 3 * 5 + 3 * 2 + 3 * 7 + 5 * 2 + 5 * 7 + 2 * 7);
  EXPECT_LT(rows.size(), 3 * 5 * 2 * 7 / 3);
}

}  // namespace
}  // namespace ctran::testing
