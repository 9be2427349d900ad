#include "mscclpp/algorithm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "mscclpp/ext/collectives/algorithm_collection_builder.hpp"
#include "tests/mscclpp/native/ranks.h"

namespace mscclpp::testing {
namespace {

/// What calls have done.
struct Log {
  int initialized = 0;
  int contexts = 0;
  int launches = 0;
};

std::shared_ptr<NativeAlgorithm> logging(Log& log, const std::string& name = "logging",
                                         Algorithm::Constraint constraint = {}) {
  return std::make_shared<NativeAlgorithm>(
      name, "allreduce", [&log](const std::shared_ptr<Communicator>&) { ++log.initialized; },
      [&log](const std::shared_ptr<void>& context, const void*, void*, size_t, size_t, DataType,
             ReduceOp, cudaStream_t, int, int, const Extras&) {
        ++log.launches;
        return context ? CommResult::CommSuccess : CommResult::CommInternalError;
      },
      [&log](const std::shared_ptr<Communicator>& communicator, const void*, void*, size_t, size_t,
             DataType) -> std::shared_ptr<void> {
        ++log.contexts;
        communicator->bootstrap()->barrier();  // it is collective
        return std::make_shared<int>(1);
      },
      [](const void* input, void* output, size_t, size_t, DataType, bool) {
        return AlgorithmCtxKey{const_cast<void*>(input), output, 0, 0, 0};
      },
      0, 4096, CollectiveBufferMode::Any, std::unordered_map<std::string, uint64_t>{}, constraint);
}

CommResult execute(Algorithm& algorithm, const std::shared_ptr<Communicator>& communicator,
                   void* buffer) {
  return algorithm.execute(communicator, buffer, buffer, 4, 4, DataType::INT32, ReduceOp::SUM,
                           nullptr, nullptr);
}

TEST(NativeAlgorithm, ContextsAreMadeWhenOneRankNeedsOne) {
  runRanks(3, [](Communicator& c) {
    const auto communicator = borrowed(c);
    const int rank = c.bootstrap()->getRank();
    Log log;
    const auto algorithm = logging(log);
    int buffers[2] = {};
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(execute(*algorithm, communicator, &buffers[0]), CommResult::CommSuccess);
    }
    EXPECT_EQ(log.contexts, 1);
    for (int i = 0; i < 3; ++i) {  // new for one rank alone
      EXPECT_EQ(execute(*algorithm, communicator, &buffers[rank == 1 ? 1 : 0]),
                CommResult::CommSuccess);
    }
    EXPECT_EQ(log.contexts, 2);
    algorithm->reset();
    execute(*algorithm, communicator, &buffers[0]);
    EXPECT_EQ(log.contexts, 3);
    EXPECT_EQ(log.initialized, 2);
    EXPECT_EQ(log.launches, 7);
  });
}

TEST(NativeAlgorithm, BuffersThatComeAndGoLeaveLittle) {
  runRanks(2, [](Communicator& c) {
    const auto communicator = borrowed(c);
    Log log;
    const auto algorithm = logging(log);
    std::vector<int> buffers(1000);
    // This rank's buffers come again, the other's do not: the calls agree all the same.
    const size_t period = c.bootstrap()->getRank() == 0 ? 10 : 1000;
    for (size_t i = 0; i < 1000; ++i) {
      ASSERT_EQ(execute(*algorithm, communicator, &buffers[i % period]), CommResult::CommSuccess);
    }
    EXPECT_EQ(log.contexts, 1000);
    for (size_t i = 0; i < 60; ++i) {  // those that both still have
      execute(*algorithm, communicator, &buffers[(999 - i) % period]);
    }
    EXPECT_EQ(log.contexts, 1000);
    execute(*algorithm, communicator, &buffers[0]);  // one of them has it no more
    EXPECT_EQ(log.contexts, 1001);
  });
}

/// Of contexts that know which one they are: each call checks that all ranks have the same.
std::shared_ptr<NativeAlgorithm> comparing(int& contexts, bool& fails) {
  struct Numbered {
    std::shared_ptr<Communicator> communicator;
    int number;
  };
  return std::make_shared<NativeAlgorithm>(
      "comparing", "allreduce", nullptr,
      [](const std::shared_ptr<void>& given, const void*, void*, size_t, size_t, DataType, ReduceOp,
         cudaStream_t, int, int, const Extras&) {
        const auto& context = *static_cast<Numbered*>(given.get());
        std::vector<int> numbers(context.communicator->bootstrap()->getNranks());
        numbers[context.communicator->bootstrap()->getRank()] = context.number;
        context.communicator->bootstrap()->allGather(numbers.data(), sizeof(int));
        const bool same = std::count(numbers.begin(), numbers.end(), numbers[0]) ==
                          static_cast<int>(numbers.size());
        return same ? CommResult::CommSuccess : CommResult::CommInternalError;
      },
      [&](const std::shared_ptr<Communicator>& communicator, const void*, void*, size_t, size_t,
          DataType) -> std::shared_ptr<void> {
        ++contexts;
        communicator->bootstrap()->barrier();
        if (fails) throw std::runtime_error("no memory");
        return std::make_shared<Numbered>(Numbered{communicator, contexts});
      },
      [](const void* input, void*, size_t, size_t, DataType, bool) {
        return AlgorithmCtxKey{const_cast<void*>(input), nullptr, 0, 0, 0};
      },
      0, 4096);
}

TEST(NativeAlgorithm, BuffersOfRanksNeedNotComeInStep) {
  runRanks(3, [](Communicator& c) {
    const auto communicator = borrowed(c);
    int contexts = 0;
    bool fails = false;
    const auto algorithm = comparing(contexts, fails);
    std::vector<int> buffers(100);
    // Of rank 0 the same one, of rank 1 two in turn, of rank 2 three.
    const size_t period = c.bootstrap()->getRank() + 1;
    for (size_t i = 0; i < 60; ++i) {
      ASSERT_EQ(execute(*algorithm, communicator, &buffers[i % period]), CommResult::CommSuccess);
    }
    EXPECT_EQ(contexts, 6);  // each combination has its own
    size_t random = c.bootstrap()->getRank();
    for (size_t i = 0; i < 500; ++i) {  // more of them than are kept
      random = random * 6364136223846793005 + 1442695040888963407;
      ASSERT_EQ(execute(*algorithm, communicator, &buffers[random >> 33 & 63]),
                CommResult::CommSuccess);
    }
    algorithm->reset(*communicator);
  });
}

TEST(NativeAlgorithm, ARankThatCouldNotMakeAContextMakesItAnew) {
  runRanks(2, [](Communicator& c) {
    const auto communicator = borrowed(c);
    int contexts = 0;
    bool fails = false;
    const auto algorithm = comparing(contexts, fails);
    int buffers[2] = {};
    EXPECT_EQ(execute(*algorithm, communicator, &buffers[0]), CommResult::CommSuccess);
    fails = true;
    EXPECT_THROW(execute(*algorithm, communicator, &buffers[1]), std::runtime_error);
    fails = false;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(execute(*algorithm, communicator, &buffers[1]), CommResult::CommSuccess);
      EXPECT_EQ(execute(*algorithm, communicator, &buffers[0]), CommResult::CommSuccess);
    }
    EXPECT_EQ(contexts, 3);
  });
}

TEST(NativeAlgorithm, CommunicatorsHaveContextsOfTheirOwn) {
  Log log;
  const auto algorithm = logging(log);
  int buffer = 0;
  for (int i = 1; i <= 3; ++i) {
    const auto bootstrap = std::make_shared<TcpBootstrap>(0, 1);
    bootstrap->initialize("127.0.0.1:1");
    const auto communicator = std::make_shared<Communicator>(bootstrap);
    EXPECT_EQ(execute(*algorithm, communicator, &buffer), CommResult::CommSuccess);
    EXPECT_EQ(execute(*algorithm, communicator, &buffer), CommResult::CommSuccess);
    EXPECT_EQ(log.initialized, i);
    EXPECT_EQ(log.contexts, i);
  }
}

TEST(NativeAlgorithm, RefusesCommunicatorsThatItIsNotFor) {
  Log log;
  const auto bootstrap = std::make_shared<TcpBootstrap>(0, 1);
  bootstrap->initialize("127.0.0.1:1");
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  const auto forTwo = logging(log, "two", {2, 0});
  EXPECT_EQ(execute(*forTwo, communicator, nullptr), CommResult::CommInvalidArgument);
  EXPECT_EQ(log.initialized, 0);
  EXPECT_NE(errorOf([&] { forTwo->setMessageSizeRange(2, 1); }).find("no message has 2 to 1"),
            std::string::npos);
}

class Builder : public AlgorithmBuilder {
 public:
  explicit Builder(std::shared_ptr<Algorithm> algorithm) : algorithm_(std::move(algorithm)) {}
  std::shared_ptr<Algorithm> build() override { return algorithm_; }

 private:
  const std::shared_ptr<Algorithm> algorithm_;
};

TEST(AlgorithmCollectionBuilder, DefaultsServeTheHost) {
  runRanks(3, [](Communicator& c) {
    const auto communicator = borrowed(c);
    const int rank = c.bootstrap()->getRank();
    AlgorithmCollectionBuilder builder;
    const AlgorithmCollection defaults = builder.buildDefaultAlgorithms(0, 0, 0, 0, rank);
    EXPECT_EQ(defaults.getAllAlgorithms().size(), 18u);
    for (const auto& named : defaults.getAlgorithmsByCollective("allreduce")) {
      const std::string& name = named.first;
      const std::shared_ptr<Algorithm>& algorithm = named.second;
      std::vector<int> data(1001, rank + 1), largest(1001, rank - 7);
      const size_t bytes = data.size() * sizeof(int);
      const auto reduce = [&](void* buffer, ReduceOp op, DataType type = DataType::INT32) {
        return algorithm->execute(communicator, buffer, buffer, bytes, bytes, type, op, nullptr,
                                  nullptr);
      };
      EXPECT_EQ(reduce(data.data(), ReduceOp::NOP), CommResult::CommSuccess) << name;
      EXPECT_EQ(data, std::vector<int>(1001, 6)) << name;
      EXPECT_EQ(reduce(largest.data(), ReduceOp::MAX), CommResult::CommSuccess) << name;
      EXPECT_EQ(largest, std::vector<int>(1001, -5)) << name;
      EXPECT_EQ(reduce(data.data(), ReduceOp::BOR, DataType::FLOAT32),
                CommResult::CommInvalidArgument);
      const auto sumIn = [&](DataType accumulator) {
        return algorithm->execute(communicator, data.data(), data.data(), bytes, bytes,
                                  DataType::FLOAT16, ReduceOp::SUM, nullptr, nullptr, 0, 0, false,
                                  {}, accumulator);
      };
      EXPECT_EQ(sumIn(DataType::FLOAT64), CommResult::CommInvalidArgument);
      EXPECT_EQ(sumIn(DataType::FLOAT32), CommResult::CommSuccess);
    }
    const auto gather =
        defaults.getAlgorithmsByCollective("allgather").at("default_allgather_fullmesh");
    std::vector<int> mine(5, rank), all(15, -1);
    gather->execute(communicator, mine.data(), all.data(), 20, 60, DataType::INT32, ReduceOp::NOP,
                    nullptr, nullptr);
    for (int i = 0; i < 15; ++i) EXPECT_EQ(all[i], i / 5);
    const auto send =
        defaults.getAlgorithmsByCollective("broadcast").at("default_broadcast_zero_copy");
    send->execute(communicator, mine.data(), all.data(), 20, 20, DataType::INT32, ReduceOp::NOP,
                  nullptr, nullptr, 0, 0, false, {{"root", 2}});
    EXPECT_EQ(all[0], 2);
    EXPECT_THROW(gather->execute(communicator, mine.data(), all.data(), 20, 20, DataType::INT32,
                                 ReduceOp::NOP, nullptr, nullptr),
                 Error);
    communicator->bootstrap()->barrier();
  });
}

TEST(DslAlgorithm, ExecutesItsPlan) {
  const auto file =
      std::filesystem::path(__FILE__).parent_path() / "../../fuzz/corpus/mscclpp/packets.json";
  runRanks(2, [&](Communicator& c) {
    const auto communicator = borrowed(c);
    const int rank = c.bootstrap()->getRank();
    const auto algorithm = std::make_shared<DslAlgorithm>(
        "mine", ExecutionPlan(file, rank),
        std::unordered_map<std::string, uint64_t>{{"packets", 1}}, Algorithm::Constraint{2, 2});
    EXPECT_EQ(algorithm->build(), algorithm);
    EXPECT_EQ(algorithm->type(), AlgorithmType::DSL);
    EXPECT_EQ(algorithm->collective(), "allreduce");
    EXPECT_EQ(algorithm->tags().at("packets"), 1u);
    algorithm->setMessageSizeRange(4, 4096);
    EXPECT_EQ(algorithm->messageRange(), (std::pair<size_t, size_t>(4, 4096)));
    const auto executor = std::make_shared<Executor>(communicator);
    std::vector<float> data(777, static_cast<float>(rank + 1));
    const auto run = [&](const std::shared_ptr<Executor>& by) {
      return algorithm->execute(communicator, data.data(), data.data(), 777 * 4, 777 * 4,
                                DataType::FLOAT32, ReduceOp::NOP, nullptr, by);
    };
    EXPECT_EQ(run(nullptr), CommResult::CommInvalidArgument);
    EXPECT_EQ(run(executor), CommResult::CommSuccess);
    EXPECT_EQ(data, std::vector<float>(777, 3.0F));
  });
}

TEST(Executor, ExecutesPlansThatPromiseNoResult) {
  const auto file = std::filesystem::path(__FILE__).parent_path() /
                    "../../fuzz/corpus/mscclpp/send_reversed.json";
  runRanks(2, [&](Communicator& c) {
    const auto communicator = borrowed(c);
    const int rank = c.bootstrap()->getRank();
    const ExecutionPlan plan(file, rank);
    EXPECT_EQ(plan.collective(), "sendrecv");
    Executor executor(communicator);
    const std::vector<int> input{10 * rank, 10 * rank + 1, 10 * rank + 2, 10 * rank + 3};
    std::vector<int> output(6, -1);
    const auto run = [&](const int* from, int* to, size_t bytes) {
      executor.execute(rank, const_cast<int*>(from), to, bytes, bytes, DataType::INT32, plan,
                       nullptr);
    };
    for (int turn = 0; turn < 3; ++turn) {
      output.assign(6, -1);
      run(input.data(), output.data(), 16);
      using Numbers = std::vector<int>;
      EXPECT_EQ(output, rank == 0 ? Numbers(6, -1) : (Numbers{2, 3, 0, 1, -1, -1}));
    }
    EXPECT_THROW(run(input.data(), output.data(), 12), Error);  // a chunk and a half each
    EXPECT_THROW(run(output.data(), output.data() + 2, 16), Error);
    EXPECT_THROW(
        executor.execute(rank, output.data(), output.data(), 16, 8, DataType::INT32, plan, nullptr),
        Error);
  });
}

TEST(AlgorithmCollectionBuilder, SelectorsChoose) {
  Log log;
  AlgorithmCollectionBuilder::reset();
  const auto builder = AlgorithmCollectionBuilder::getInstance();
  EXPECT_EQ(builder, AlgorithmCollectionBuilder::getInstance());
  builder->addAlgorithmBuilder(std::make_shared<Builder>(logging(log, "small")));
  builder->addAlgorithmBuilder(std::make_shared<Builder>(logging(log, "large")));
  builder->setAlgorithmSelector([](const AlgorithmsByCollective& all,
                                   const CollectiveRequest& request) -> std::shared_ptr<Algorithm> {
    if (request.messageSize > 100) return nullptr;
    return all.at(request.collective).at("small");
  });
  builder->setFallbackAlgorithmSelector(
      [](const AlgorithmsByCollective& all, const CollectiveRequest&) {
        return all.at("allreduce").at("large");
      });
  const AlgorithmCollection collection = builder->build();
  EXPECT_EQ(collection.getAllAlgorithms().size(), 2U);
  EXPECT_EQ(collection.getAlgorithmsByCollective("allgather").size(), 0U);
  CollectiveRequest request;
  request.collective = "allreduce";
  request.messageSize = 100;
  EXPECT_EQ(collection.selectAlgorithm(request)->name(), "small");
  request.messageSize = 101;
  EXPECT_EQ(collection.selectAlgorithm(request)->name(), "large");
  request.collective = "allgather";
  EXPECT_TRUE(has(errorOf([&] { collection.selectAlgorithm(request); }),
                  "asked for allgather, and returned large, of allreduce"));
  request.collective = "allreduce";
  AlgorithmCollection both;
  EXPECT_EQ(both.selectAlgorithm(request), nullptr);
  both.extend(collection);
  EXPECT_EQ(both.getAlgorithmsByCollective("allreduce").size(), 2U);
  AlgorithmCollectionBuilder::reset();
  EXPECT_TRUE(AlgorithmCollectionBuilder::getInstance()->build().getAllAlgorithms().empty());
}

/// Every value, and what lies half-way between neighbours.
template <class Half>
void testRounding(int infinity) {
  const auto of = [](int bits) {
    Half value;
    value.bits = static_cast<uint16_t>(bits);
    return value;
  };
  for (int bits = 0; bits < infinity; ++bits) {
    for (const int sign : {0, 0x8000}) {
      ASSERT_EQ(Half(static_cast<float>(of(bits | sign))).bits, bits | sign);
    }
    if (bits + 1 == infinity) break;
    const float low = of(bits);
    const float high = of(bits + 1);
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(Half(middle).bits, bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(Half(std::nextafter(middle, 0.0F)).bits, bits);
    ASSERT_EQ(Half(std::nextafter(middle, INFINITY)).bits, bits + 1);
  }
  EXPECT_EQ(Half(INFINITY).bits, infinity);
  EXPECT_EQ(Half(-INFINITY).bits, infinity | 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(Half(NAN))));
  EXPECT_TRUE(std::isnan(static_cast<float>(of(infinity + 1))));
  EXPECT_EQ(Half(3.4e38F).bits >= infinity - 1, true);
}

TEST(DataTypes, HalvesRoundToTheNearestEven) {
  testRounding<__half>(0x7c00);
  testRounding<__nv_bfloat16>(0x7f80);
  EXPECT_EQ(__half(65504.0F).bits, 0x7bff);
  EXPECT_EQ(__half(65520.0F).bits, 0x7c00);  // half-way to what would come next
  EXPECT_EQ(__half(65519.0F).bits, 0x7bff);
}

TEST(DataTypes, VectorsAreReducedByElement) {
  f16x4 a{{1.0F, 2.0F, -3.0F, 0.5F}};
  const f16x4 b{{4.0F, -2.0F, 3.0F, 0.25F}};
  const f16x4 sum = a + b;
  EXPECT_EQ(static_cast<float>(sum[3]), 0.75F);
  EXPECT_EQ(static_cast<float>(min(a, b)[1]), -2.0F);
  EXPECT_EQ(static_cast<float>(max(a, b)[2]), 3.0F);
  EXPECT_EQ(sizeof(f32x4), 16U);
  EXPECT_EQ(alignof(f16x2), 4U);
}

}  // namespace
}  // namespace mscclpp::testing
