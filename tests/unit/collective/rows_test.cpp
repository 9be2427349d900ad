// Rows of which only the senders know how many there are: dispatched, sent once per host, returned.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <set>

#include "ctran/bootstrap/local_store.h"
#include "ctran/engine/communicator.h"
#include "tests/unit/support/cases.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

constexpr float kPoison = -12345.0f;

/// One exchange; what each rank lists follows from it.
struct RowCase {
  enum Form { Consecutive, Listed, Chunks, Once } form = Consecutive;
  size_t elements = 1;     ///< of a row
  size_t most = 4;         ///< rows (chunks) that a rank lists for another
  bool perSender = false;  ///< an output for each sender
  bool posted = false;
  uint64_t seed = 0;

  std::string describe() const {
    return "form " + std::to_string(form) + ", rows of " + std::to_string(elements) + ", up to " +
           std::to_string(most) + ", seed " + std::to_string(seed) + (posted ? ", posted" : "");
  }
};

constexpr size_t kChunks = 5;

/// What one rank lists, as any rank can tell.
struct Lists {
  std::vector<int64_t> counts, indices, chunkRows;
  size_t rows = 0;

  Lists(const RowCase& c, int rank, int size) {
    uint64_t random = mix(c.seed * 1000 + rank);
    const auto next = [&random](uint64_t below) {
      random = mix(random);
      return below == 0 ? 0 : random % below;
    };
    if (c.form == RowCase::Chunks) {
      for (size_t k = 0; k < kChunks; ++k) {
        chunkRows.push_back(static_cast<int64_t>(next(c.most + 1)));
        rows += chunkRows.back();
      }
    } else if (c.form != RowCase::Consecutive) {
      rows = 1 + next(2 * c.most + 1);
    }
    for (int r = 0; r < size; ++r) {
      // Some ranks get nothing.
      const uint64_t count = next(4) == 0 ? 0 : next(c.most + 1);
      counts.push_back(static_cast<int64_t>(count));
      if (c.form == RowCase::Consecutive) rows += count;
      for (uint64_t i = 0; c.form != RowCase::Consecutive && i < count; ++i) {
        const size_t known = c.form == RowCase::Chunks ? kChunks : rows;
        indices.push_back(static_cast<int64_t>(next(known)));
      }
    }
  }

  /// The rows that go to a rank, in order.
  std::vector<int64_t> rowsTo(int peer) const {
    int64_t first = 0;
    for (int r = 0; r < peer; ++r) first += counts[r];
    std::vector<int64_t> found;
    for (int64_t i = first; i < first + counts[peer]; ++i) {
      if (indices.empty()) {
        found.push_back(i);
      } else if (chunkRows.empty()) {
        found.push_back(indices[i]);
      } else {
        int64_t begin = 0;
        for (int64_t k = 0; k < indices[i]; ++k) begin += chunkRows[k];
        for (int64_t row = 0; row < chunkRows[indices[i]]; ++row) found.push_back(begin + row);
      }
    }
    return found;
  }
};

/// A whole number, so that sums are exact.
float valueAt(const RowCase& c, int rank, int64_t row, size_t element) {
  return static_cast<float>(mix(c.seed + (rank * 4096 + row) * 8192 + element) % 2048);
}

float weightAt(const RowCase& c, int holder, size_t i) {
  constexpr float kWeights[] = {0.5f, 1.0f, 2.0f, 0.25f};
  return kWeights[mix(c.seed + holder * 65536 + i) % 4];
}

/// One rank's call with memory of its own.
class Dispatch {
 public:
  Dispatch(const RowCase& c, int rank, int size)
      : case_(c), rank_(rank), size_(size), lists_(c, rank, size), counts(size, -1) {
    for (size_t row = 0; row < lists_.rows; ++row) {
      for (size_t e = 0; e < c.elements; ++e) input_.push_back(valueAt(c, rank, row, e));
    }
    for (int s = 0; s < size; ++s) {
      const Lists theirs(c, s, size);
      expectedCounts_.push_back(0);
      for (const int64_t row : theirs.rowsTo(rank)) {
        ++expectedCounts_.back();
        for (size_t e = 0; e < c.elements; ++e) expected_.push_back(valueAt(c, s, row, e));
      }
      for (size_t k = 0; k < kChunks && c.form == RowCase::Chunks; ++k) {
        expectedChunks_.push_back(0);
        int64_t first = 0;
        for (int r = 0; r < rank; ++r) first += theirs.counts[r];
        for (int64_t i = first; i < first + theirs.counts[rank]; ++i) {
          if (theirs.indices[i] == static_cast<int64_t>(k)) {
            expectedChunks_.back() += theirs.chunkRows[k];
          }
        }
      }
    }
    rows_ = std::make_shared<RowExchange>();
    rows_->inputRows = lists_.rows;
    rows_->sendCounts = lists_.counts.data();
    rows_->received = counts.data();
    if (c.form != RowCase::Consecutive) {
      rows_->sendIndices = lists_.indices.data();
      rows_->indices = lists_.indices.size();
      lists_.indices.reserve(1);  // a pointer, also where nothing is listed
      rows_->sendIndices = lists_.indices.data();
    }
    if (c.form == RowCase::Chunks) {
      rows_->chunkRows = lists_.chunkRows.data();
      rows_->chunks = kChunks;
      chunks_.assign(size * kChunks, -1);
      rows_->receivedChunks = chunks_.data();
    }
    rows_->dedup = c.form == RowCase::Once;
    collective_.kind = Kind::AllToAllVDynamic;
    collective_.type = DataType::Float32;
    collective_.count = c.elements;
    collective_.input = reinterpret_cast<const std::byte*>(input_.data());
    if (c.perSender) {
      for (int s = 0; s < size; ++s) {
        apart_.emplace_back((expectedCounts_[s] + 2) * c.elements, kPoison);
        collective_.outputs.push_back(
            {reinterpret_cast<std::byte*>(apart_[s].data()), apart_[s].size()});
      }
    } else {
      output.assign(expected_.size() + 3 * c.elements, kPoison);
      collective_.output = reinterpret_cast<std::byte*>(output.data());
      rows_->outputRows = output.size() / c.elements;
    }
    collective_.rows = rows_;
  }
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  const Collective& collective() const { return collective_; }
  RowExchange& rows() { return *rows_; }
  Lists& lists() { return lists_; }
  const std::vector<int64_t>& expectedCounts() const { return expectedCounts_; }
  /// What came, without what is behind it.
  std::vector<float> came() const { return {output.begin(), output.begin() + expected_.size()}; }

  void check() const {
    SCOPED_TRACE(case_.describe() + " on rank " + std::to_string(rank_) + " of " +
                 std::to_string(size_));
    EXPECT_EQ(counts, expectedCounts_);
    EXPECT_EQ(chunks_, expectedChunks_);
    std::vector<float> wanted = expected_;
    if (case_.perSender) {
      const float* at = expected_.data();
      for (int s = 0; s < size_; ++s) {
        const float* const end = at + expectedCounts_[s] * case_.elements;
        std::vector<float> part(at, end);
        part.insert(part.end(), 2 * case_.elements, kPoison);
        EXPECT_TRUE(apart_[s] == part) << "from rank " << s;
        at = end;
      }
    } else {
      wanted.insert(wanted.end(), 3 * case_.elements, kPoison);
      EXPECT_TRUE(output == wanted);
    }
  }

 private:
  RowCase case_;
  int rank_, size_;
  Lists lists_;
  std::vector<float> input_, expected_;
  std::vector<int64_t> expectedCounts_, expectedChunks_, chunks_;
  std::vector<std::vector<float>> apart_;
  std::shared_ptr<RowExchange> rows_;
  Collective collective_;

 public:
  std::vector<int64_t> counts;
  std::vector<float> output;
};

/// Returns what was dispatched.
class Combine {
 public:
  Combine(const RowCase& c, int rank, int size, bool weighted)
      : case_(c), lists_(c, rank, size), rank_(rank), weighted_(weighted) {
    for (int s = 0; s < size; ++s) {
      const Lists theirs(c, s, size);
      counts.push_back(0);
      for (const int64_t row : theirs.rowsTo(rank)) {
        ++counts.back();
        for (size_t e = 0; e < c.elements; ++e) input_.push_back(returnedAt(rank, s, row, e));
      }
    }
    for (size_t i = 0; i * c.elements < input_.size(); ++i)
      weights_.push_back(weightAt(c, rank, i));
    weights_.reserve(1);
    std::vector<double> sums(lists_.rows * c.elements);
    for (int holder = 0; holder < size; ++holder) {
      size_t i = 0;  // at the holder, behind what came from the ranks before this one
      for (int s = 0; s < rank; ++s) i += Lists(c, s, size).rowsTo(holder).size();
      for (const int64_t row : lists_.rowsTo(holder)) {
        const float weight = weighted ? weightAt(c, holder, i) : 1.0f;
        for (size_t e = 0; e < c.elements; ++e) {
          sums[row * c.elements + e] += weight * returnedAt(holder, rank, row, e);
        }
        ++i;
      }
    }
    expected_.assign(sums.begin(), sums.end());
    output_.assign(expected_.size(), kPoison);
    rows_ = std::make_shared<RowExchange>();
    rows_->inputRows = input_.size() / c.elements;
    rows_->outputRows = lists_.rows;
    rows_->sendCounts = lists_.counts.data();
    lists_.indices.reserve(1);
    if (c.form != RowCase::Consecutive) {
      rows_->sendIndices = lists_.indices.data();
      rows_->indices = lists_.indices.size();
    }
    rows_->received = counts.data();
    rows_->weights = weighted ? weights_.data() : nullptr;
    rows_->dedup = true;
    collective_.kind = Kind::AllToAllVCombine;
    collective_.type = DataType::Float32;
    collective_.count = c.elements;
    collective_.input = reinterpret_cast<const std::byte*>(input_.data());
    collective_.output = reinterpret_cast<std::byte*>(output_.data());
    collective_.rows = rows_;
  }
  Combine(const Combine&) = delete;
  Combine& operator=(const Combine&) = delete;

  const Collective& collective() const { return collective_; }
  void check() const {
    SCOPED_TRACE(case_.describe() + (weighted_ ? ", weighted" : "") + " back on rank " +
                 std::to_string(rank_));
    EXPECT_TRUE(output_ == expected_);
  }

 private:
  /// What a holder made of a row.
  float returnedAt(int holder, int owner, int64_t row, size_t element) const {
    return valueAt(case_, owner, row, element) + static_cast<float>(holder);
  }

  RowCase case_;
  Lists lists_;
  int rank_;
  bool weighted_;
  std::vector<float> input_, weights_, expected_, output_;
  std::shared_ptr<RowExchange> rows_;
  Collective collective_;

 public:
  std::vector<int64_t> counts;
};

void run(Communicator& communicator, const Collective& collective, bool posted) {
  if (posted) {
    communicator.post(collective)->wait();
  } else {
    communicator.run(collective);
  }
}

std::vector<RowCase> allCases() {
  std::vector<RowCase> cases;
  const auto add = [&](RowCase::Form form, size_t elements, size_t most) {
    const size_t n = cases.size();
    cases.push_back({form, elements, most, form != RowCase::Once && n % 3 == 1, n % 2 == 1, n + 1});
  };
  for (const auto form : {RowCase::Consecutive, RowCase::Listed, RowCase::Chunks, RowCase::Once}) {
    add(form, 1, 0);      // nothing at all
    add(form, 3, 2);      // little
    add(form, 100, 9);    // at once, or in rounds, by rank
    add(form, 2000, 40);  // in rounds; by rendezvous
    add(form, 1, 700);    // many rows
  }
  add(RowCase::Once, 10'000, 20);  // in many chunks
  return cases;
}

/// `hosts[r]`: that of rank r; all on one that is no other's, if it is empty.
struct Placement {
  const char* name;
  int size;
  std::vector<int> hosts = {};
};

class Rows : public ::testing::TestWithParam<Placement> {
 protected:
  void runPlaced(const std::function<void(Communicator&)>& body) {
    const Placement& placement = GetParam();
    const auto store = std::make_shared<MemoryStore>();
    runThreads(placement.size, [&](int rank) {
      auto options = optionsFor(rank, placement.size, store);
      if (!placement.hosts.empty()) {
        options.hints["ctran::host"] = "host" + std::to_string(placement.hosts[rank]);
      }
      const auto communicator = Communicator::create(options);
      try {
        body(*communicator);
        communicator->finalize();
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        communicator->abort("the test failed");
      }
    });
  }
};

TEST_P(Rows, ArriveInTheOrderOfTheirSendersAndReturnAsSums) {
  runPlaced([](Communicator& communicator) {
    const int rank = communicator.rank(), size = communicator.size();
    for (const RowCase& c : allCases()) {
      const bool isListed = c.form == RowCase::Listed;
      if (c.elements >= 2000 && (kThreadSanitizer || (kAddressSanitizer && !isListed))) continue;
      Dispatch dispatch(c, rank, size);
      run(communicator, dispatch.collective(), c.posted);
      dispatch.check();
      if (c.form == RowCase::Chunks) continue;
      for (const bool weighted : {false, true}) {
        const Combine combine(c, rank, size, weighted);
        run(communicator, combine.collective(), c.posted);
        combine.check();
      }
    }
  });
}

TEST_P(Rows, ManyExchangesMayBeInFlight) {
  runPlaced([](Communicator& communicator) {
    const int rank = communicator.rank(), size = communicator.size();
    std::vector<std::unique_ptr<Dispatch>> dispatches;
    std::vector<std::shared_ptr<Work>> works;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const auto form = static_cast<RowCase::Form>(seed % 4);
      dispatches.push_back(
          std::make_unique<Dispatch>(RowCase{form, 30 * seed, 8, false, true, seed}, rank, size));
      works.push_back(communicator.post(dispatches.back()->collective()));
    }
    for (const auto& work : works) work->wait();
    for (const auto& dispatch : dispatches) dispatch->check();
  });
}

/// The counts of an exchange may be what the operation before it writes.
TEST_P(Rows, NumbersAreReadWhenTheOperationStarts) {
  runPlaced([](Communicator& communicator) {
    const int rank = communicator.rank(), size = communicator.size();
    const RowCase c{RowCase::Consecutive, 50, 6, false, true, 77};
    Dispatch dispatch(c, rank, size);
    std::vector<int64_t> late(size, -1);
    dispatch.rows().expected = late.data();
    Collective tell;
    tell.kind = Kind::AllToAll;
    tell.type = DataType::Int64;
    tell.count = 1;
    tell.input = reinterpret_cast<const std::byte*>(dispatch.lists().counts.data());
    tell.output = reinterpret_cast<std::byte*>(late.data());
    const auto first = communicator.post(tell);
    const auto second = communicator.post(dispatch.collective());
    second->wait();
    first->wait();
    dispatch.check();
    EXPECT_EQ(late, dispatch.expectedCounts());
  });
}

TEST_P(Rows, WrongNumbersAreRefusedAtTheCallAndBreakNothing) {
  runPlaced([](Communicator& communicator) {
    const int rank = communicator.rank(), size = communicator.size();
    const RowCase c{RowCase::Listed, 2, 3, false, false, 5};
    const auto refused = [&](const std::function<void(Dispatch&)>& spoil) {
      Dispatch dispatch(c, rank, size);
      spoil(dispatch);
      for (const bool posted : {false, true}) {
        const Error error = errorOf([&] { run(communicator, dispatch.collective(), posted); });
        EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument) << error.what();
        EXPECT_EQ(error.ranks(), std::vector<int>{rank}) << error.what();
      }
    };
    refused([](Dispatch& d) { d.lists().counts[0] = -1; });
    refused([](Dispatch& d) { d.lists().counts.back() = INT64_MAX; });
    refused([](Dispatch& d) {
      d.lists().counts[0] = 1;
      d.lists().indices.assign(1, static_cast<int64_t>(d.lists().rows));
      d.rows().sendIndices = d.lists().indices.data();
      d.rows().indices = 1;
    });
    EXPECT_FALSE(communicator.isAborted());
    Dispatch right(c, rank, size);
    communicator.run(right.collective());
    right.check();
  });
}

INSTANTIATE_TEST_SUITE_P(On, Rows,
                         ::testing::Values(Placement{"OneRank", 1}, Placement{"OneHostOf2", 2},
                                           Placement{"OneHostOf3", 3}, Placement{"OneHostOf8", 8},
                                           Placement{"OneRankEachOf2", 2, {0, 1}},
                                           Placement{"OneRankEachOf3", 3, {0, 1, 2}},
                                           Placement{"TwoRanksEach", 4, {0, 0, 1, 1}},
                                           Placement{"InTurns", 8, {0, 1, 0, 1, 0, 1, 0, 1}},
                                           Placement{"Uneven", 7, {0, 1, 1, 0, 1, 2, 2}}),
                         [](const auto& placement) { return placement.param.name; });

/// Of two hosts of two.
void runTwoPerHost(const std::function<void(Communicator&)>& body) { runRanks(4, body, 2); }

uint64_t sentBy(Communicator& communicator) { return communicator.transport()->bytesSent(); }

TEST(RowBytes, ARowCrossesToAHostOnce) {
  std::atomic<uint64_t> direct{0}, once{0}, back{0};
  constexpr size_t kElements = 500;
  constexpr size_t kRowBytes = kElements * sizeof(float);
  RowCase c{RowCase::Listed, kElements, 20, false, false, 3};
  runTwoPerHost([&](Communicator& communicator) {
    const int rank = communicator.rank();
    RowCase own = c;
    const uint64_t start = sentBy(communicator);
    Dispatch plain(own, rank, 4);
    communicator.run(plain.collective());
    const uint64_t afterDirect = sentBy(communicator);
    own.form = RowCase::Once;
    Dispatch dedup(own, rank, 4);
    communicator.run(dedup.collective());
    const uint64_t afterOnce = sentBy(communicator);
    const Combine combine(own, rank, 4, true);
    communicator.run(combine.collective());
    direct += afterDirect - start;
    once += afterOnce - afterDirect;
    back += sentBy(communicator) - afterOnce;
    plain.check();
    dedup.check();
    combine.check();
  });
  uint64_t listed = 0, different = 0;
  for (int s = 0; s < 4; ++s) {
    const Lists lists(c, s, 4);
    std::set<int64_t> rows;
    for (const int peer : {s / 2 * 2 ^ 2, (s / 2 * 2 ^ 2) + 1}) {
      for (const int64_t row : lists.rowsTo(peer)) {
        ++listed;
        rows.insert(row);
      }
    }
    different += rows.size();
  }
  ASSERT_LT(different, listed);
  constexpr uint64_t kPairs = 4 * 2, kHostPairs = 4;
  EXPECT_EQ(direct, listed * kRowBytes + kPairs * sizeof(uint64_t));
  EXPECT_EQ(once,
            different * kRowBytes + listed * sizeof(uint32_t) + kHostPairs * 3 * sizeof(uint64_t));
  EXPECT_EQ(back, once);  // the same notes; sums instead of rows
}

/// Four ranks, `perHost` on each host, with a body that starts when all have joined: what breaks
/// then is no failure to join.
void runJoined(int perHost, const std::function<void(Communicator&)>& body) {
  std::barrier together(4);
  runRanks(
      4,
      [&](Communicator& communicator) {
        together.arrive_and_wait();
        body(communicator);
        together.arrive_and_wait();
      },
      perHost);
}

/// Disagreements break the communicator on every rank, with a message that names both.
void expectBroken(int perHost, ErrorKind kind, const std::set<int>& ranks, const std::string& told,
                  const std::function<void(Communicator&)>& body) {
  runJoined(perHost, [&](Communicator& communicator) {
    const Error error = errorOf([&] {
      body(communicator);
      communicator.run({});
    });
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(std::set<int>(error.ranks().begin(), error.ranks().end()), ranks) << error.what();
    EXPECT_NE(std::string(error.what()).find(told), std::string::npos) << error.what();
  });
}

class RowErrors : public ::testing::TestWithParam<int> {};

TEST_P(RowErrors, WhatDoesNotFitIsRefusedAndNothingIsWritten) {
  for (const auto form : {RowCase::Consecutive, RowCase::Listed, RowCase::Once}) {
    expectBroken(GetParam(), ErrorKind::Mismatch, {1, 3}, "sends", [&](Communicator& communicator) {
      // Rank 3 sends rank 1 one row more than that has room for.
      const int rank = communicator.rank();
      std::vector<int64_t> counts(4, 0), indices{0, 1, 1}, received(4, -1);
      if (rank == 3) counts[1] = 3;
      std::vector<float> input(8, 1), output(16, kPoison);
      auto rows = std::make_shared<RowExchange>();
      rows->inputRows = 4;
      rows->outputRows = 2;
      rows->sendCounts = counts.data();
      if (form != RowCase::Consecutive) {
        rows->sendIndices = indices.data();
        rows->indices = 3;
      }
      rows->received = received.data();
      rows->dedup = form == RowCase::Once;
      Collective c;
      c.kind = Kind::AllToAllVDynamic;
      c.type = DataType::Float32;
      c.count = 2;
      c.input = reinterpret_cast<const std::byte*>(input.data());
      c.output = reinterpret_cast<std::byte*>(output.data());
      c.rows = rows;
      try {
        communicator.run(c);
      } catch (const Error&) {
        EXPECT_EQ(std::count(output.begin(), output.end(), kPoison), 16);
        throw;
      }
    });
  }
}

TEST_P(RowErrors, AnotherCountThanExpectedIsTold) {
  expectBroken(GetParam(), ErrorKind::Mismatch, {2, 0}, "which expects",
               [](Communicator& communicator) {
                 const int rank = communicator.rank();
                 Dispatch d({RowCase::Consecutive, 4, 5, false, false, 9}, rank, 4);
                 std::vector<int64_t> expected = d.expectedCounts();
                 if (rank == 0) ++expected[2];
                 d.rows().expected = expected.data();
                 communicator.run(d.collective());
               });
}

TEST_P(RowErrors, RowsOfAnotherSizeAreTold) {
  runJoined(GetParam(), [](Communicator& communicator) {
    const int rank = communicator.rank();
    Dispatch d({RowCase::Once, rank == 2 ? size_t{5} : size_t{4}, 5, false, false, 9}, rank, 4);
    const Error error = errorOf([&] {
      communicator.run(d.collective());
      communicator.run({});
    });
    EXPECT_EQ(error.kind(), ErrorKind::Mismatch) << error.what();
    EXPECT_EQ(std::count(error.ranks().begin(), error.ranks().end(), 2), 1) << error.what();
    EXPECT_NE(std::string(error.what()).find("all_to_all_v_dynamic(float32, rows of 5"),
              std::string::npos)
        << error.what();
  });
}

TEST_P(RowErrors, ReturnsThatDoNotMatchAreTold) {
  expectBroken(GetParam(), ErrorKind::Mismatch, {3, 1}, "lists", [](Communicator& communicator) {
    Combine combine({RowCase::Consecutive, 4, 5, false, false, 12}, communicator.rank(), 4, false);
    if (communicator.rank() == 3) {
      ASSERT_GT(combine.counts[1], 0);
      --combine.counts[1];
    }
    communicator.run(combine.collective());
  });
}

TEST_P(RowErrors, WhoDoesNotComeIsNamed) {
  // 0: a delegate is missed on another host, and a neighbour by its neighbours.
  for (const int missing : GetParam() == 2 ? std::vector{0, 3} : std::vector{3}) {
    runJoined(GetParam(), [&](Communicator& communicator) {
      if (communicator.rank() == missing) return;
      Dispatch d({RowCase::Once, 4, 5, false, false, 9}, communicator.rank(), 4);
      const Error error =
          errorOf([&] { communicator.run(d.collective(), std::chrono::milliseconds(700)); });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{missing}) << error.what();
    });
  }
}

#if !defined(__SANITIZE_THREAD__)

TEST_P(RowErrors, WhoIsKilledIsNamed) {
  constexpr int kVictim = 3;
  const TemporaryDirectory directory;
  Shared<Barrier> barrier;
  ForkedRanks ranks(4, [&](int rank) {
    auto options = optionsFor(rank, 4, std::make_shared<DirectoryStore>(directory.path()));
    if (GetParam() > 0) options.hints["ctran::host"] = "host" + std::to_string(rank / GetParam());
    const auto communicator = Communicator::create(options);
    barrier->arrive(5);
    if (rank == kVictim) {
      while (true) ::pause();
    }
    Dispatch d({RowCase::Once, 200, 30, false, false, 9}, rank, 4);
    const Error error = errorOf([&] {
      while (true) communicator->run(d.collective());
    });
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{kVictim}) << error.what();
  });
  barrier->arrive(5);
  for (int r = 0; r < 4; ++r) awaitSleep(ranks.pid(r));
  ranks.kill(kVictim, SIGKILL);
  ranks.expectSuccess({kVictim});
}

#endif

INSTANTIATE_TEST_SUITE_P(RanksPerHost, RowErrors, ::testing::Values(0, 1, 2, 3),
                         [](const auto& info) { return "Of" + std::to_string(info.param); });

}  // namespace
}  // namespace ctran::testing
