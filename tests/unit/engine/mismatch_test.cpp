// Ranks that call different things.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "ctran/collective/signature.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

constexpr size_t kSmall = 10, kLarge = 300'000;

/// A call with memory of its own, large enough for any role in it.
class OwnCall {
 public:
  OwnCall(Kind kind, size_t count, int size) : data_(count * size * 16, std::byte{1}) {
    collective.kind = kind;
    collective.type = DataType::Float32;
    collective.count = count;
    collective.input = data_.data();
    collective.output = data_.data() + data_.size() / 2;
  }

  /// The v forms: `counts` as inputs and as outputs.
  OwnCall(Kind kind, std::vector<size_t> inputs, std::vector<size_t> outputs, int rank)
      : data_(std::size_t{1} << 24, std::byte{1}) {
    collective.kind = kind;
    collective.type = DataType::Float32;
    for (const size_t count : inputs) collective.inputs.push_back({data_.data(), count});
    std::byte* const output = data_.data() + data_.size() / 2;
    for (const size_t count : outputs) collective.outputs.push_back({output, count});
    if (kind != Kind::AllToAllV) {
      collective.input = data_.data();
      collective.output = output;
      collective.count = (inputs.empty() ? outputs : inputs)[rank];
    }
  }

  Collective collective;

 private:
  std::vector<std::byte> data_;
};

/// What rank r of two calls.
struct Disagreement {
  std::string name;
  std::function<OwnCall(int rank)> call;
  std::vector<std::string> told;  ///< parts of the message
};

Disagreement kinds(const std::string& name, Kind a, Kind b, size_t countA, size_t countB) {
  return {name,
          [=](int rank) { return OwnCall(rank == 0 ? a : b, rank == 0 ? countA : countB, 2); },
          {std::string(nameOf(a)), std::string(nameOf(b))}};
}

template <class Change>
Disagreement fields(const std::string& name, Kind kind, size_t count, Change change,
                    std::vector<std::string> told) {
  return {name,
          [=](int rank) {
            OwnCall call(kind, count, 2);
            change(call.collective, rank);
            return call;
          },
          std::move(told)};
}

std::vector<Disagreement> disagreements() {
  std::vector<Disagreement> all;
  for (const size_t count : {kSmall, kLarge}) {
    const std::string how = count == kSmall ? "Small" : "Large";
    for (const Kind kind : {Kind::Broadcast, Kind::AllReduce, Kind::Reduce, Kind::AllGather,
                            Kind::ReduceScatter, Kind::Scatter, Kind::Gather, Kind::AllToAll}) {
      all.push_back(
          fields("Count" + how + std::string(nameOf(kind)), kind, count,
                 [](Collective& c, int rank) { c.count += rank; },
                 {std::to_string(count) + " elements", std::to_string(count + 1) + " elements"}));
      all.push_back(fields(
          "Type" + how + std::string(nameOf(kind)), kind, count,
          [](Collective& c, int rank) { c.type = rank ? DataType::Int32 : DataType::Float32; },
          {"float32", "int32"}));
    }
    for (const Kind kind : {Kind::Broadcast, Kind::Reduce, Kind::Scatter, Kind::Gather}) {
      all.push_back(fields("Root" + how + std::string(nameOf(kind)), kind, count,
                           [](Collective& c, int rank) { c.root = rank; }, {"root 0", "root 1"}));
      all.push_back(fields("OtherRoot" + how + std::string(nameOf(kind)), kind, count,
                           [](Collective& c, int rank) { c.root = 1 - rank; },
                           {"root 0", "root 1"}));
    }
    for (const Kind kind : {Kind::AllReduce, Kind::Reduce, Kind::ReduceScatter}) {
      all.push_back(fields(
          "Op" + how + std::string(nameOf(kind)), kind, count,
          [](Collective& c, int rank) { c.op.kind = rank ? ReduceKind::Max : ReduceKind::Sum; },
          {"sum", "max"}));
      all.push_back(fields("Premul" + how + std::string(nameOf(kind)), kind, count,
                           [](Collective& c, int rank) {
                             c.op.kind = rank ? ReduceKind::PremulSum : ReduceKind::Sum;
                           },
                           {"(sum", "(premul_sum"}));
    }
    all.push_back(kinds("Kinds" + how, Kind::AllReduce, Kind::AllGather, count, count));
    all.push_back(kinds("Barrier" + how, Kind::Barrier, Kind::Broadcast, 0, count));
    all.push_back(kinds("RootedKinds" + how, Kind::Gather, Kind::Scatter, count, count));
    all.push_back({"AllGatherV" + how,
                   [=](int rank) {
                     const size_t other = rank == 0 ? count : count / 2;
                     return OwnCall(
                         Kind::AllGatherV, {},
                         rank == 0 ? std::vector{count, other} : std::vector{other, count}, rank);
                   },
                   {"all_gather_v"}});
    all.push_back({"ReduceScatterV" + how,
                   [=](int rank) {
                     return OwnCall(Kind::ReduceScatterV, {count + rank, count}, {}, rank);
                   },
                   {"reduce_scatter_v", "other counts per rank"}});
    all.push_back(
        {"AllToAllV" + how,
         [=](int rank) {
           return OwnCall(Kind::AllToAllV, {count, count}, {count + rank, count}, rank);
         },
         {"rank 0 sends " + std::to_string(count), "expects " + std::to_string(count + 1)}});
    all.push_back({"Message" + how,
                   [=](int rank) {
                     OwnCall call(rank == 0 ? Kind::Send : Kind::Recv, count + rank, 1);
                     call.collective.root = 1 - rank;
                     return call;
                   },
                   {"send(float32, " + std::to_string(count) + " elements",
                    "recv(float32, " + std::to_string(count + 1) + " elements"}});
    all.push_back({"MessageType" + how,
                   [=](int rank) {
                     OwnCall call(rank == 0 ? Kind::Send : Kind::Recv, count, 1);
                     call.collective.type = rank == 0 ? DataType::Int32 : DataType::Float32;
                     call.collective.root = 1 - rank;
                     return call;
                   },
                   {"send(int32", "recv(float32"}});
  }
  all.push_back(kinds("SmallAndLarge", Kind::AllReduce, Kind::AllReduce, kSmall, kLarge));
  all.push_back(kinds("SmallAndLargeKinds", Kind::AllGather, Kind::AllToAll, kLarge, kSmall));
  return all;
}

class Mismatch : public ::testing::TestWithParam<Disagreement> {};

/// At this call, or at the next one where this one needs nobody.
void expectMismatch(Communicator& communicator, const Disagreement& disagreement, bool posted) {
  const OwnCall call = disagreement.call(communicator.rank());
  const Error error = errorOf([&] {
    if (posted) {
      communicator.post(call.collective)->wait();
    } else {
      communicator.run(call.collective);
    }
    communicator.run({});
  });
  EXPECT_EQ(error.kind(), ErrorKind::Mismatch) << error.what();
  auto ranks = error.ranks();
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, (std::vector{0, 1})) << error.what();
  EXPECT_FALSE(error.hint().empty());
  for (const std::string& part : disagreement.told) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << error.what() << "\ndoes not say " << part;
  }
  // From now on every call says the same.
  EXPECT_TRUE(communicator.isAborted());
  const Error later = errorOf([&] { communicator.run({}); });
  EXPECT_EQ(later.kind(), ErrorKind::Mismatch);
  EXPECT_EQ(later.ranks(), error.ranks());
  EXPECT_EQ(later.hint(), error.hint());
  EXPECT_EQ(errorOf([&] { communicator.post({}); }).kind(), ErrorKind::Mismatch);
}

TEST_P(Mismatch, IsToldToAllRanksWithBothSides) {
  for (const bool posted : {false, true}) {
    runRanks(2,
             [&](Communicator& communicator) { expectMismatch(communicator, GetParam(), posted); });
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Mismatch, ::testing::ValuesIn(disagreements()), [](const auto& info) {
  std::string name = info.param.name;
  std::erase(name, '_');
  return name;
});

TEST(Mismatch, OfManyRanksNamesOneThatDiffers) {
  runRanks(5, [](Communicator& communicator) {
    const OwnCall call(Kind::AllReduce, communicator.rank() == 3 ? 7 : 8, 5);
    const Error error = errorOf([&] {
      communicator.run(call.collective);
      communicator.run({});
    });
    EXPECT_EQ(error.kind(), ErrorKind::Mismatch);
    EXPECT_TRUE(std::find(error.ranks().begin(), error.ranks().end(), 3) != error.ranks().end());
    EXPECT_NE(std::string(error.what()).find("7 elements"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("8 elements"), std::string::npos) << error.what();
  });
}

TEST(Mismatch, OfACallThatHadReturnedNamesThatCall) {
  // Roots run ahead: nobody waits for anybody until the barrier.
  runRanks(2, [](Communicator& communicator) {
    const Error error = errorOf([&] {
      for (int i = 0; i < 5; ++i) {
        OwnCall call(Kind::Broadcast, kSmall, 2);
        if (i == 2) call.collective.root = communicator.rank();
        communicator.run(call.collective);
      }
      communicator.run({});
    });
    EXPECT_EQ(error.kind(), ErrorKind::Mismatch);
    EXPECT_NE(std::string(error.what()).find("collective 3 differs"), std::string::npos)
        << error.what();
  });
}

TEST(Mismatch, OfTheLastCallIsToldByFinalize) {
  std::atomic<int> told{0};
  runRanks(2, [&](Communicator& communicator) {
    OwnCall call(Kind::Broadcast, kSmall, 2);
    call.collective.root = communicator.rank();
    communicator.run(call.collective);
    try {
      communicator.finalize();
    } catch (const Error& error) {
      ++told;
      EXPECT_EQ(error.kind(), ErrorKind::Mismatch);
      EXPECT_NE(std::string(error.what()).find("root 0"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("root 1"), std::string::npos) << error.what();
    }
    communicator.finalize();  // it has left all the same
  });
  EXPECT_GE(told, 1);
}

TEST(Mismatch, OfPremulFactorsIsNone) {
  runRanks(2, [](Communicator& communicator) {
    std::vector<float> data(100, 1.0f);
    Collective c;
    c.kind = Kind::AllReduce;
    c.type = DataType::Float32;
    c.op = {ReduceKind::PremulSum, communicator.rank() + 1.0};
    c.count = data.size();
    c.input = reinterpret_cast<const std::byte*>(data.data());
    c.output = reinterpret_cast<std::byte*>(data.data());
    communicator.run(c);
    EXPECT_EQ(data[99], 3.0f);
  });
}

TEST(Signature, TellsApartWhatRanksMustAgreeOnAndNothingElse) {
  std::vector<uint64_t> seen;
  const auto add = [&](const Collective& c) { seen.push_back(extendSignature(17, c)); };
  Collective c;
  c.kind = Kind::Reduce;
  c.type = DataType::Float32;
  c.count = 5;
  add(c);
  c.count = 6;
  add(c);
  c.type = DataType::Int32;
  add(c);
  c.op.kind = ReduceKind::Max;
  add(c);
  c.root = 1;
  add(c);
  c.kind = Kind::Broadcast;
  add(c);
  c.kind = Kind::AllGatherV;
  for (const auto& counts : {std::vector<size_t>{1, 2}, {2, 1}, {3, 0}}) {
    c.outputs.clear();
    for (const size_t count : counts) c.outputs.push_back({nullptr, count});
    add(c);
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]) << i << " and " << j;
  }
  Collective same = c;
  same.input = reinterpret_cast<const std::byte*>(&same);
  same.count = 99;  // of this rank's block, which the list says for all
  same.op.factor = 3;
  EXPECT_EQ(extendSignature(17, same), extendSignature(17, c));
  EXPECT_NE(extendSignature(18, c), extendSignature(17, c));
}

}  // namespace
}  // namespace ctran::testing
