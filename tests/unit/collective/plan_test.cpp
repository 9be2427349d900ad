// Plans that serve real calls: what the library's plans compute, on all kinds of data and memory,
// and what happens when a rank is missing, gone, or of another opinion.
#include <gtest/gtest.h>
#include <signal.h>

#include <barrier>
#include <optional>
#include <thread>

#include "ctran/bootstrap/local_store.h"
#include "ctran/plan/builder.h"
#include "ctran/plan/library.h"
#include "ctran/select/plans.h"
#include "ctran/select/selector.h"
#include "tests/unit/support/cases.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using plan::makePlan;
using plan::Recipe;

/// A plan that serves the calls of the test's communicators, until the end of the block.
class Served {
 public:
  explicit Served(const plan::Plan& plan)
      : number_(registerPlan(plan, {.communicator = "test", .preferred = true})) {}
  ~Served() { removePlan(number_); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

 private:
  uint64_t number_;
};

/// How many ranks, and where.
struct World {
  int size;
  int ranksPerHost = 0;  ///< 0: all on one host
};

/// The plan that serves a call on one host.
std::shared_ptr<const PlanAlgorithm> planFor(const Collective& call, int size,
                                             const std::string& communicator) {
  Selector selector(size);
  selector.usePlans(communicator);
  return selector.choosePlan(call);
}

/// Runs the cases one after another on all ranks, with a look at the results after each.
void runCases(const World& world, const std::vector<Case>& cases, const std::string& name) {
  const int size = world.size;
  Inputs inputs(size);
  std::atomic<int> wrong{0};
  std::barrier together(size);
  const auto body = [&](Communicator& communicator) {
    const int rank = communicator.rank();
    for (const Case& c : cases) {
      inputs[rank] = inputsOf(c, rank, size);
      const Buffers buffers(c, rank, size, inputs[rank]);
      EXPECT_NE(planFor(buffers.collective(), size, "test"), nullptr) << c.describe();
      try {
        if (c.posted) {
          communicator.post(buffers.collective())->wait();
        } else {
          communicator.run(buffers.collective());
        }
      } catch (const Error& error) {
        ADD_FAILURE() << name << ": " << c.describe() << ", rank " << rank << ": " << error.what();
        ++wrong;
      }
      together.arrive_and_wait();
      const std::string found = buffers.check(expectedOf(c, rank, size, inputs));
      if (!found.empty()) {
        ADD_FAILURE() << name << ": " << c.describe() << ", rank " << rank << " of " << size << ": "
                      << found;
        ++wrong;
      }
      together.arrive_and_wait();
      if (wrong > 3) return;
    }
  };
  runRanks(size, body, world.ranksPerHost);
}

/// Types in which the order of a sum makes no difference, or all if the plan keeps that of ranks.
std::vector<Case> casesFor(const PlanAlgorithm& algorithm, int size, uint64_t seed) {
  const plan::Properties& properties = algorithm.properties();
  const bool exact = properties.rankOrder && properties.flat;
  const bool sums = algorithm.plan().kind == CollectiveKind::AllReduce ||
                    algorithm.plan().kind == CollectiveKind::ReduceScatter;
  std::vector<DataType> types{DataType::Int32, DataType::UInt8, DataType::Int64};
  if (exact) {
    types.insert(types.end(), {DataType::Float32, DataType::BFloat16, DataType::Float8E4M3,
                               DataType::Complex64, DataType::Bool});
  }
  if (!sums) types.push_back(DataType::Opaque16);
  const size_t large = kSanitizer ? 100'000 : 1'000'000;
  std::vector<Case> cases;
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{5}, size_t{64}, size_t{1000}, size_t{70'000}, large}) {
    Case c;
    c.kind = algorithm.plan().kind;
    c.seed = seed + cases.size();
    c.type = types[mix(c.seed) % types.size()];
    c.count = bytes / sizeOf(c.type) + bytes % 3;
    c.root = isRooted(c.kind) ? static_cast<int>(mix(c.seed + 1) % size) : 0;
    c.inPlace = cases.size() % 2 == 1;
    c.listed = mix(c.seed + 2) % 2 == 0;
    c.posted = cases.size() % 3 == 2;
    c.misalignment = mix(c.seed + 3) % 5;
    if (sums && exact) {
      constexpr ReduceKind kOps[] = {ReduceKind::Sum, ReduceKind::Avg, ReduceKind::Max,
                                     ReduceKind::PremulSum};
      c.op.kind = kOps[mix(c.seed + 4) % std::size(kOps)];
    } else if (sums) {
      c.op.kind = mix(c.seed + 4) % 2 == 0 ? ReduceKind::Sum : ReduceKind::BitXor;
    }
    if (sums && !isSupported(c.op.kind, c.type)) c.op.kind = ReduceKind::Sum;
    cases.push_back(c);
  }
  return cases;
}

/// Scratch is a part of the rings, which begins wherever the call before has ended: small and large
/// ones take turns, and fill rings several times.
TEST(PlanScratch, IsFoundAtEveryPositionOfTheRings) {
  uint64_t seed = 7000;
  for (const char* name :
       {"all_reduce.one_shot_pull", "all_reduce.two_shot_pull", "all_reduce.two_shot",
        "all_gather.direct_pull", "reduce_scatter.direct_pull", "all_to_all.direct_pull",
        "broadcast.direct_pull", "broadcast.chain"}) {
    const plan::Plan plan = makePlan(name, {2});
    const Served served(plan);
    std::vector<Case> cases;
    for (const size_t count : {10'000, 250'000, 300, 70'000, 2'500'000, 1, 40'000, 1'000'000}) {
      Case c;
      c.kind = plan.kind;
      c.seed = ++seed;
      c.type = DataType::Int32;
      c.count = kSanitizer ? std::min<size_t>(count, 600'000) : count;
      cases.push_back(c);
    }
    runCases({2}, cases, plan.name);
    if (HasFailure()) return;
  }
}

TEST(PlanServes, CallsThatBeginAtTheSameTime) {
  for (const plan::BuiltIn& builtIn : plan::library()) {
    if (!builtIn.whyNot({2}).empty()) continue;
    const plan::Plan plan = builtIn.make({2});
    const Served served(plan);
    runRanks(2, [&](Communicator& communicator) {
      EXPECT_EQ(wrongOfSmallCalls(communicator, plan.kind, 5'000), 0) << plan.name;
    });
  }
}

class PlanOf : public ::testing::TestWithParam<World> {};

/// With the types that are exact, "what the native algorithm gives" is every bit of it.
TEST_P(PlanOf, EveryPlanOfTheLibraryGivesWhatTheReferenceGives) {
  const World& world = GetParam();
  const int size = world.size;
  if (kSanitizer && size > 3) GTEST_SKIP();  // nothing new, slowly
  if (size > 4 && !testsEverything()) GTEST_SKIP();
  uint64_t seed = 1;
  for (const plan::BuiltIn& builtIn : plan::library()) {
    const int ranksPerHost = world.ranksPerHost > 0 ? world.ranksPerHost : size % 2 == 0 ? 2 : 1;
    const Recipe recipe{size, size / 2, 1 + size % 2, 1 + size % 3, ranksPerHost};
    if (!builtIn.whyNot(recipe).empty()) continue;
    const plan::Plan plan = builtIn.make(recipe);
    const Served served(plan);
    std::vector<Case> cases = casesFor(PlanAlgorithm(plan), size, seed += 100);
    // Between hosts, of the small ones one will do.
    if (world.ranksPerHost > 0) cases.erase(cases.begin() + 2, cases.begin() + 4);
    runCases(world, cases, plan.name);
    if (HasFailure()) return;
  }
}

std::string nameOfWorld(const ::testing::TestParamInfo<World>& info) {
  const World& world = info.param;
  return "Of" + std::to_string(world.size) +
         (world.ranksPerHost == 0 ? "" : "By" + std::to_string(world.ranksPerHost));
}

INSTANTIATE_TEST_SUITE_P(Sizes, PlanOf,
                         ::testing::Values(World{2}, World{3}, World{4}, World{2, 1}, World{3, 2},
                                           World{3, 1}, World{4, 2}, World{6, 2}, World{8, 2},
                                           World{8, 4}),
                         nameOfWorld);

/// A plan that is right, but not in place: the executor makes up for it.
TEST(PlanServes, InPlaceCallsWithPlansThatAreNot) {
  plan::Builder b("late sender", CollectiveKind::AllToAll, 2, 1);
  for (int r = 0; r < 2; ++r) {
    b.copy({r, 0}, plan::Builder::output(r, r), b.input(r, r));
    for (int turn = 0; turn < 2; ++turn) {
      if (turn == r) {
        plan::Step& put = b.step({r, 0});
        b.move(put, {}, {b.input(r, 1 - r)});
        b.link({r, 0}, {1 - r, 0}).put(put);
      } else {
        plan::Step& take = b.step({r, 0});
        plan::Link& link = b.link({1 - r, 0}, {r, 0});
        link.arrive(take);
        b.move(take, {plan::Builder::output(r, 1 - r)}, {});
        link.release(take);
      }
    }
  }
  const plan::Plan plan = b.finish();
  ASSERT_FALSE(PlanAlgorithm(plan).properties().inPlaceSafe);
  const Served served(plan);
  runCases({2}, casesFor(PlanAlgorithm(plan), 2, 5), plan.name);
  runCases({2, 1}, casesFor(PlanAlgorithm(plan), 2, 6), plan.name);
}

/// A plan written for the output alone, as all-reduces in place are.
TEST(PlanServes, CallsOutOfPlaceWithPlansThatAreInPlace) {
  plan::Builder b("in place", CollectiveKind::AllReduce, 2, 2);
  b.setInPlace();
  for (int r = 0; r < 2; ++r) {
    plan::Step& put = b.step({r, 0});
    b.move(put, {}, {b.input(r, 1 - r)});
    b.link({r, 0}, {1 - r, 0}).put(put);
    plan::Step& sum = b.step({r, 0});
    if (r == 1) b.link({1 - r, 0}, {r, 0}).arrive(sum);
    b.move(sum, {plan::Builder::output(r, r)}, {b.input(r, r)});
    if (r == 0) b.link({1 - r, 0}, {r, 0}).arrive(sum);
    b.link({1 - r, 0}, {r, 0}).release(sum);
    plan::Step& give = b.step({r, 0});
    b.move(give, {}, {plan::Builder::output(r, r)});
    b.link({r, 0}, {1 - r, 0}, 1, 1).put(give);
    plan::Step& take = b.step({r, 0});
    b.link({1 - r, 0}, {r, 0}, 1, 1).arrive(take);
    b.move(take, {plan::Builder::output(r, 1 - r)}, {});
    b.link({1 - r, 0}, {r, 0}, 1, 1).release(take);
  }
  const plan::Plan plan = b.finish();
  const Served served(plan);
  runCases({2}, casesFor(PlanAlgorithm(plan), 2, 9), plan.name);
  runCases({2, 1}, casesFor(PlanAlgorithm(plan), 2, 10), plan.name);
}

/// The least and the greatest are rounded nowhere, so partial ones are as good.
TEST(PlanServes, MinimaAndMaximaOfSmallFloatsInParts) {
  const plan::Plan plan = makePlan("all_reduce.recursive_doubling", {4});
  ASSERT_FALSE(PlanAlgorithm(plan).properties().flat);
  const Served served(plan);
  std::vector<Case> cases;
  for (const DataType type : {DataType::BFloat16, DataType::Float16, DataType::Float8E4M3}) {
    for (const ReduceKind op : {ReduceKind::Min, ReduceKind::Max}) {
      Case c;
      c.kind = plan.kind;
      c.seed = 40 + cases.size();
      c.type = type;
      c.op.kind = op;
      c.count = 1001;
      cases.push_back(c);
    }
    Collective sum;
    sum.kind = plan.kind;
    sum.type = type;
    EXPECT_NE(PlanAlgorithm(plan).whyNot(sum, 4).find("more than once"), std::string::npos);
  }
  runCases({4}, cases, plan.name);
}

/// Steps that put into several ranks' scratch at once, near and elsewhere, signal each, and reduce
/// on the way.
TEST(PlanServes, WithStepsThatConcernSeveralRanks) {
  constexpr int kRanks = 4;
  plan::Builder b("fan out", CollectiveKind::AllReduce, kRanks, 3);
  b.setDepth(2);
  // Each rank adds its own to what the one before it has; the last tells all.
  for (int r = 0; r < kRanks; ++r) {
    plan::Step& add = b.step({r, 0});
    if (r > 0) b.link({r - 1, 0}, {r, 0}, 3).arrive(add);
    b.move(add, r + 1 < kRanks ? std::vector<plan::Place>{} : std::vector{b.output(r, 0)},
           {b.input(r, 0)}, 3);
    if (r > 0) b.link({r - 1, 0}, {r, 0}, 3).release(add);
    if (r + 1 < kRanks) {
      b.link({r, 0}, {r + 1, 0}, 3).put(add);
      plan::Step& take = b.step({r, 1});
      b.link({kRanks - 1, 0}, {r, 1}, 3, 1).arrive(take);
      b.move(take, {b.output(r, 0)}, {}, 3);
      b.link({kRanks - 1, 0}, {r, 1}, 3, 1).release(take);
      continue;
    }
    for (int other = 0; other < r; ++other) b.link({r, 0}, {other, 1}, 3, 1).put(add);
  }
  const plan::Plan plan = b.finish();
  const Served served(plan);
  for (const int ranksPerHost : {0, 1, 2, 3}) {
    runCases({kRanks, ranksPerHost}, casesFor(PlanAlgorithm(plan), kRanks, 11 + ranksPerHost),
             plan.name);
  }
}

Collective allReduce(std::vector<float>& data) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.type = DataType::Float32;
  c.count = data.size();
  c.input = c.output = reinterpret_cast<std::byte*>(data.data());
  return c;
}

/// The native algorithm adds 1e8 + 1 - 1e8 to 0 in the order of ranks; around the ring, piece k
/// begins at rank k + 1.
TEST(PlanServes, TheCallAndNotTheNativeAlgorithm) {
  const auto sumOf = [](const std::optional<std::string>& name, int ranksPerHost) {
    std::optional<Served> served;
    if (name) served.emplace(makePlan(*name, {3}));
    std::vector<float> result;
    const auto body = [&](Communicator& communicator) {
      std::vector<float> data(48, communicator.rank() == 0   ? 1e8f
                                  : communicator.rank() == 1 ? 1.f
                                                             : -1e8f);
      communicator.run(allReduce(data));
      if (communicator.rank() == 0) result = data;
    };
    runRanks(3, body, ranksPerHost);
    return result;
  };
  for (const int ranksPerHost : {0, 1, 2}) {
    const std::vector<float> native(48, 0.f);
    if (ranksPerHost == 0) {
      EXPECT_EQ(sumOf(std::nullopt, 0), native);
    }
    EXPECT_EQ(sumOf("all_reduce.two_shot", ranksPerHost), native);
    EXPECT_EQ(sumOf("all_reduce.two_shot_pull", ranksPerHost), native);
    std::vector<float> ring(48, 0.f);
    std::fill(ring.begin() + 16, ring.begin() + 32, 1.f);  // (-1e8 + 1e8) + 1
    EXPECT_EQ(sumOf("all_reduce.ring", ranksPerHost), ring);
  }
}

TEST(PlanServes, OnlyWhatItIsMeantFor) {
  const uint64_t number = registerPlan(makePlan("all_reduce.ring", {3}), {"one", 100, 200, true});
  std::vector<float> data(25);
  EXPECT_NE(planFor(allReduce(data), 3, "one"), nullptr);
  EXPECT_EQ(planFor(allReduce(data), 3, "two"), nullptr);
  EXPECT_EQ(planFor(allReduce(data), 2, "one"), nullptr);
  Collective half = allReduce(data);
  half.type = DataType::BFloat16;
  half.count = 60;
  EXPECT_EQ(planFor(half, 3, "one"), nullptr);  // it would round twice
  data.resize(51);
  EXPECT_EQ(planFor(allReduce(data), 3, "one"), nullptr);
  EXPECT_TRUE(removePlan(number));
  EXPECT_FALSE(removePlan(number));
  data.resize(25);
  EXPECT_EQ(planFor(allReduce(data), 3, "one"), nullptr);
}

TEST(PlanServes, NothingIfItIsWrong) {
  plan::Plan plan = makePlan("broadcast.direct", {2});
  ++plan.channels[1].credits;
  const Error error = errorOf([&] { registerPlan(plan); });
  EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
  EXPECT_NE(std::string(error.what()).find("race: rank"), std::string::npos) << error.what();

  plan::Builder b("remote", CollectiveKind::Broadcast, 2, 1);
  const int channel = b.channel({0, 0}, {1, 0});
  plan::Step& put = b.step({0, 0});
  b.move(put, {plan::Builder::output(1, 0)}, {plan::Builder::output(0, 0)});
  put.signals = {channel};
  b.step({1, 0}).waits = {{channel, 1}};
  EXPECT_EQ(errorOf([&] { registerPlan(b.finish()); }).kind(), ErrorKind::Unsupported);
  EXPECT_EQ(errorOf([&] { registerPlan(makePlan("all_reduce.ring", {65})); }).kind(),
            ErrorKind::Unsupported);
}

TEST(PlanServes, NothingIfItPromisesNothing) {
  plan::Builder b("open", CollectiveKind::AllReduce, 2, 1);
  plan::Plan plan = b.finish();
  plan.open = {1, 1};
  const Error error = errorOf([&] { registerPlan(plan); });
  EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument);
  EXPECT_NE(std::string(error.what()).find("promises no result"), std::string::npos);

  std::vector<float> data(4);
  Collective call = allReduce(data);
  const std::map<std::string, std::string> hints{{"ctran::algorithm", "plan:open"}};
  for (const bool standing : {false, true}) {
    const uint64_t number = registerStaged(plan, {.communicator = "one", .preferred = true});
    call.hints = nullptr;
    EXPECT_EQ(planFor(call, 2, "one"), nullptr);
    call.hints = callHints(hints, standing);
    EXPECT_EQ(planFor(call, 2, "one"), nullptr);
    auto open = std::make_shared<CallHints>(*call.hints);
    open->openPlans = true;
    call.hints = open;
    EXPECT_NE(planFor(call, 2, "one"), nullptr);
    removePlan(number);
  }
}

// --- When something breaks
// ------------------------------------------------------------------------

TEST(PlanServes, WithADeadlineThatNamesWhoIsMissing) {
  const auto test = [](const char* name, int ranksPerHost) {
    const Served served(makePlan(name, {4}));
    std::barrier together(4);
    const auto body = [&](Communicator& communicator) {
      std::vector<float> data(100'000);
      if (communicator.rank() != 2) {
        const Error error = errorOf([&] { communicator.run(allReduce(data), kArrival); });
        EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
        EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
      }
      together.arrive_and_wait();
    };
    runRanks(4, body, ranksPerHost);
  };
  test("all_reduce.ring", 0);
  test("all_reduce.ring", 2);
  test("all_reduce.two_shot_pull", 1);
}

TEST(PlanServes, UntilSomebodyAborts) {
  const Served served(makePlan("all_reduce.bidirectional_ring", {3}));
  for (const int ranksPerHost : {0, 1, 2}) {
    std::barrier together(3);
    const auto body = [&](Communicator& communicator) {
      together.arrive_and_wait();
      std::vector<float> data(100'000);
      if (communicator.rank() == 0) return communicator.abort("enough");
      const Error error = errorOf([&] { communicator.run(allReduce(data)); });
      EXPECT_EQ(error.kind(), ErrorKind::Aborted) << error.what();
    };
    runRanks(3, body, ranksPerHost);
  }
}

/// A communicator of processes, on one host or each on one of its own.
std::shared_ptr<Communicator> join(const TemporaryDirectory& directory, int rank, int size,
                                   bool onSeveralHosts) {
  auto options = optionsFor(rank, size, std::make_shared<DirectoryStore>(directory.path()));
  if (onSeveralHosts) options.hints["ctran::host"] = "host" + std::to_string(rank);
  return Communicator::create(options);
}

TEST(PlanServes, OnlyIfAllRanksAgree) {
  if (kThreadSanitizer) GTEST_SKIP();
  for (const bool onTwoHosts : {false, true}) {
    TemporaryDirectory directory;
    ForkedRanks ranks(2, [&](int rank) {
      std::optional<Served> served;
      if (rank == 0) served.emplace(makePlan("all_reduce.ring", {2}));
      const auto communicator = join(directory, rank, 2, onTwoHosts);
      std::vector<float> data(1000);
      const Error error = errorOf([&] { communicator->run(allReduce(data)); });
      EXPECT_EQ(error.kind(), ErrorKind::Mismatch) << error.what();
      EXPECT_NE(std::string(error.what()).find("by another plan"), std::string::npos)
          << error.what();
    });
    ranks.expectSuccess();
  }
}

/// Rank 2 comes, and stops before the others; the neighbours wait for each other, all of them in
/// the end for rank 2.
TEST(PlanServes, WithADeadlineThatNamesWhoHoldsUpTheOthers) {
  if (kThreadSanitizer) GTEST_SKIP();
  TemporaryDirectory directory;
  const Shared<std::atomic<bool>> stopped;
  const Shared<std::atomic<int>> ended;
  ForkedRanks ranks(4, [&](int rank) {
    const Served served(makePlan("all_reduce.ring", {4}));
    const auto store = std::make_shared<DirectoryStore>(directory.path());
    const auto communicator = Communicator::create(optionsFor(rank, 4, store));
    std::vector<float> data(1000);
    if (rank == 2) {
      communicator->post(allReduce(data));
      ::raise(SIGSTOP);
      return;
    }
    awaitFlag(*stopped);
    const Error error = errorOf([&] { communicator->run(allReduce(data), kArrival); });
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 2 makes no progress"), std::string::npos)
        << error.what();
    ended->fetch_add(1);
  });
  awaitStop(ranks.pid(2));
  stopped->store(true);
  while (ended->load() < 3) std::this_thread::yield();
  ranks.kill(2, SIGKILL);
  ranks.expectSuccess({2});
}

TEST(PlanServes, UntilARankDies) {
  if (kThreadSanitizer) GTEST_SKIP();
  for (const bool onThreeHosts : {false, true}) {
    TemporaryDirectory directory;
    ForkedRanks ranks(3, [&](int rank) {
      const Served served(makePlan("all_reduce.ring", {3}));
      const auto communicator = join(directory, rank, 3, onThreeHosts);
      std::vector<float> data(100'000);
      communicator->run(allReduce(data));
      communicator->run({});
      if (rank == 1) ::raise(SIGKILL);
      const Error error = errorOf([&] {
        while (true) communicator->run(allReduce(data));
      });
      EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
    });
    ranks.expectSuccess({1});
  }
}

TEST(PlanServes, BetweenNativeAlgorithms) {
  // They share memory: each kind follows each other kind, large and small.
  const Served served(makePlan("all_reduce.two_shot_pull", {4}));
  const auto body = [&](Communicator& communicator) {
    for (int i = 0; i < 40; ++i) {
      const size_t count = i % 3 == 0 ? 10 : 30'000;
      std::vector<int32_t> data(count, communicator.rank() + i), all(4 * count);
      Collective c;
      c.kind = i % 2 == 0 ? CollectiveKind::AllReduce : CollectiveKind::AllGather;
      c.type = DataType::Int32;
      c.count = count;
      c.input = reinterpret_cast<std::byte*>(data.data());
      c.output = reinterpret_cast<std::byte*>(all.data());
      communicator.run(c);
      for (int b = 0; b < (i % 2 == 0 ? 1 : 4); ++b) {
        const int expected = i % 2 == 0 ? 6 + 4 * i : b + i;
        ASSERT_EQ(all[b * count], expected);
        ASSERT_EQ(all[(b + 1) * count - 1], expected);
      }
    }
  };
  for (const int ranksPerHost : {0, 1, 2}) runRanks(4, body, ranksPerHost);
}

}  // namespace
}  // namespace ctran::testing
