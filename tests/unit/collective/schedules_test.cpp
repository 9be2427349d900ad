// Every algorithm over the network, under thousands of orders in which a network may do things. No
// processes, threads or sockets: the ranks are coroutines, and a seed decides what happens next. A
// failure names its seed; `NETWORK_SEED=<seed>` runs that one alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <optional>

#include "ctran/collective/net_context.h"
#include "ctran/collective/registry.h"
#include "tests/unit/support/cases.h"
#include "tests/unit/support/ranks.h"
#include "tests/unit/support/scheduled_network.h"

namespace ctran::testing {
namespace {

std::shared_ptr<SharedMapping> zeros(size_t bytes) {
  return SharedMapping::map(createSharedMemory("test", bytes), bytes);
}

/// Ranks that are placed round robin over hosts.
HostMap interleaved(int size, int hosts, int rank) {
  std::vector<std::string> names;
  for (int r = 0; r < size; ++r) names.push_back("host" + std::to_string(r % hosts));
  return {names, rank, size};
}

/// The ranks of a communicator without an engine above them.
class ScheduledRanks {
 public:
  ScheduledRanks(int size, int hosts) : size(size), network(size) {
    for (int r = 0; r < size; ++r) {
      boards_.emplace_back(zeros(Board::bytesFor(size)), r, size, false);
      calls_.emplace_back(boards_.back(), network.transport(r), 0);
      contexts_.emplace_back(calls_.back(), interleaved(size, hosts, r));
    }
  }

  const int size;
  ScheduledNetwork network;

  HostsCall& call(int rank) { return calls_[rank]; }
  NetContext& context(int rank) { return contexts_[rank]; }

 private:
  std::deque<Board> boards_;
  std::deque<HostsCall> calls_;
  std::deque<NetContext> contexts_;
};

/// One collective on all ranks of a world.
class Schedule {
 public:
  Schedule(ScheduledRanks& world, const Case& c, const Algorithm& algorithm, uint64_t seed)
      : world_(world), case_(c), algorithm_(algorithm), random_(seed), inputs_(world.size) {
    world_.network.restart(random_.next());
    for (int r = 0; r < world_.size; ++r) inputs_[r] = inputsOf(c, r, world_.size);
    for (int r = 0; r < world_.size; ++r) {
      buffers_.emplace_back(c, r, world_.size, inputs_[r]);
      world_.call(r).begin(buffers_[r].collective());
    }
    tasks_.resize(world_.size);
    errors_.resize(world_.size);
    world_.network.onFailure = [this](int rank, const Error& error) { fail(rank, error); };
  }

  /// Until all ranks have ended; `killed` dies at some moment. What went wrong; empty if nothing.
  std::string run(std::optional<int> killed = {}) {
    const size_t moment = killed ? random_.below(60) : 0;
    std::vector<int> late(world_.size);  // ranks that have not called yet
    for (int r = 0; r < world_.size; ++r) late[r] = r;
    for (size_t time = 0; !late.empty() || !allEnded(); ++time) {
      if (killed && time == moment) {
        fail(*killed, Error(ErrorKind::PeerLost, "died", {*killed}));
        world_.network.kill(*killed);
      }
      if (!late.empty() && random_.oneIn(4)) {
        std::swap(late[random_.below(late.size())], late.back());
        const int rank = late.back();
        late.pop_back();
        if (!errors_[rank]) start(rank);
        continue;
      }
      const bool moved = world_.network.step();
      const int some = static_cast<int>(random_.below(world_.size));
      if (!advance(some) && !moved && !advanceAll() && late.empty()) return stuck();
    }
    for (int r = 0; r < world_.size; ++r) {
      const std::string what = check(r, killed);
      if (!what.empty()) return "rank " + std::to_string(r) + ": " + what;
    }
    return {};
  }

 private:
  void start(int rank) {
    NetContext& context = world_.context(rank);
    context.prepare(world_.size);
    tasks_[rank] = std::get<NetAlgorithm>(algorithm_.run)(context, buffers_[rank].collective());
    finishIfDone(rank);
  }

  bool advance(int rank) {
    if (!tasks_[rank] || !tasks_[rank].advance()) return false;
    finishIfDone(rank);
    return true;
  }

  bool advanceAll() {
    bool any = false;
    for (int r = 0; r < world_.size; ++r) any = advance(r) || any;
    return any;
  }

  void finishIfDone(int rank) {
    if (!tasks_[rank].done()) return;
    try {
      tasks_[rank].get();
      world_.call(rank).end();
    } catch (const Error& error) {
      errors_[rank].emplace(error);
    }
    hasEnded_ |= uint64_t{1} << rank;
    tasks_[rank].reset();
  }

  /// The engine ends an operation that way: its memory is the user's again.
  void fail(int rank, const Error& error) {
    if (hasEnded_ >> rank & 1) return;
    errors_[rank].emplace(error);
    hasEnded_ |= uint64_t{1} << rank;
    tasks_[rank].reset();
    left_.push_back({rank, buffers_[rank].outputs()});
  }

  bool allEnded() const { return hasEnded_ == (uint64_t{1} << world_.size) - 1; }

  std::string check(int rank, std::optional<int> killed) {
    if (!killed) {
      if (errors_[rank]) return errors_[rank]->what();
      return buffers_[rank].check(expectedOf(case_, rank, world_.size, inputs_));
    }
    if (!errors_[rank]) {  // it needed nothing more of the dead one
      return buffers_[rank].check(expectedOf(case_, rank, world_.size, inputs_));
    }
    if (errors_[rank]->ranks() != std::vector<int>{*killed}) return "blames another rank";
    for (const auto& [failed, outputs] : left_) {
      if (failed == rank && outputs != buffers_[rank].outputs()) {
        return "memory was written after the operation had failed";
      }
    }
    return {};
  }

  std::string stuck() const {
    std::string text = "nothing moves any more;";
    for (int r = 0; r < world_.size; ++r) {
      if (!tasks_[r]) continue;
      text += " rank " + std::to_string(r) + " waits for " +
              std::to_string(tasks_[r].waiting().awaited()) + ";";
    }
    return text;
  }

  ScheduledRanks& world_;
  const Case case_;
  const Algorithm& algorithm_;
  Random random_;
  Inputs inputs_;
  std::deque<Buffers> buffers_;
  std::vector<Task> tasks_;
  std::vector<std::optional<Error>> errors_;
  std::vector<std::pair<int, std::vector<std::vector<std::byte>>>> left_;
  uint64_t hasEnded_ = 0;
};

Case caseOf(CollectiveKind kind, int size, bool sumsPartially, Random& random) {
  constexpr DataType kTypes[] = {DataType::Float32, DataType::Int32, DataType::BFloat16,
                                 DataType::UInt8, DataType::Float64};
  constexpr size_t kCounts[] = {0, 1, 2, 7, 64, 130, 1000};
  constexpr ReduceKind kOps[] = {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min,
                                 ReduceKind::Avg};
  Case c;
  c.kind = kind;
  c.type = kTypes[random.below(std::size(kTypes))];
  c.op.kind = kOps[random.below(std::size(kOps))];
  if (!isSupported(c.op.kind, c.type)) c.op.kind = ReduceKind::Sum;
  c.count = kCounts[random.below(std::size(kCounts))];
  if (random.oneIn(20)) c.count = 90'000;  // in many segments
  c.root = isRooted(kind) ? static_cast<int>(random.below(size)) : 0;
  c.inPlace = random.oneIn(3);
  c.listed = random.oneIn(3);
  c.seed = random.next();
  c.whole = sumsPartially;
  return c;
}

struct Parameters {
  CollectiveKind kind;
  const Algorithm* algorithm;
};

std::vector<Parameters> everyAlgorithm() {
  std::vector<Parameters> all;
  for (const CollectiveKind kind : kKinds) {
    for (const Algorithm* one : algorithmsOf(AlgorithmPlace::Network, kind)) {
      all.push_back({kind, one});
    }
  }
  return all;
}

class Schedules : public ::testing::TestWithParam<Parameters> {
 protected:
  static constexpr int kSizes[] = {2, 3, 4, 5, 8};

  static size_t howMany() {
    if (testsEverything()) return 10'000;
    return kSanitizer ? 100 : 250;
  }

  /// Runs schedules until one goes wrong.
  void runAll(bool kills) {
    const auto& [kind, algorithm] = GetParam();
    std::map<std::pair<int, int>, ScheduledRanks> worlds;
    const char* const only = std::getenv("NETWORK_SEED");
    const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
    for (uint64_t seed = first; seed < first + (only != nullptr ? 1 : howMany()); ++seed) {
      Random random(seed);
      const int size = kSizes[random.below(std::size(kSizes))];
      const int hosts = 1 + static_cast<int>(random.below(3));
      ScheduledRanks& world = worlds.try_emplace({size, hosts}, size, hosts).first->second;
      const Case c = caseOf(kind, size, algorithm->sumsPartially, random);
      std::optional<int> killed;
      if (kills) killed = static_cast<int>(random.below(size));
      Schedule schedule(world, c, *algorithm, random.next());
      const std::string wrong = schedule.run(killed);
      ASSERT_EQ(wrong, "") << "NETWORK_SEED=" << seed << ": " << c.describe() << " of " << size
                           << " ranks on " << hosts << " hosts";
    }
  }
};

TEST_P(Schedules, GiveTheSameResult) { runAll(false); }
TEST_P(Schedules, EndWhenARankDies) { runAll(true); }

/// How often data crosses from host to host: pairs of ranks, of 12 placed round robin, which know
/// that or take themselves for ranks of one host.
int crossings(CollectiveKind kind, std::string_view name, int hosts, bool known = true) {
  constexpr int kRanks = 12;
  ScheduledRanks world(kRanks, known ? hosts : 1);
  const Algorithm* const algorithm = findAlgorithm(AlgorithmPlace::Network, kind, name);
  Case c;
  c.kind = kind;
  c.count = 1000;
  c.whole = true;
  EXPECT_EQ(Schedule(world, c, *algorithm, 1).run(), "");
  int count = 0;
  for (const auto& [from, to] : world.network.senders()) count += from % hosts != to % hosts;
  return count;
}

TEST(Order, RingsCrossFromHostToHostOncePerHost) {
  for (const CollectiveKind kind :
       {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
    for (const int hosts : {2, 3, 4, 6}) EXPECT_EQ(crossings(kind, "ring", hosts), hosts);
  }
}

TEST(Order, TreesCrossFromHostToHostSeldom) {
  // Of hosts of 4 and of 2 ranks, whose ranges are subtrees.
  EXPECT_EQ(crossings(CollectiveKind::Broadcast, "binomial", 3), 2);
  EXPECT_EQ(crossings(CollectiveKind::Broadcast, "binomial", 6), 5);
  for (const int hosts : {2, 3, 4}) {
    const auto pairs = [hosts](bool known) {
      return crossings(CollectiveKind::AllReduce, "double_binary_tree", hosts, known);
    };
    EXPECT_LT(pairs(true), pairs(false)) << hosts << " hosts";
  }
}

INSTANTIATE_TEST_SUITE_P(Network, Schedules, ::testing::ValuesIn(everyAlgorithm()),
                         [](const auto& info) {
                           return std::string(nameOf(info.param.kind)) + "_" +
                                  std::string(info.param.algorithm->name);
                         });

}  // namespace
}  // namespace ctran::testing
