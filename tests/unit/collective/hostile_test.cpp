// What a rank of another host says in the midst of an operation, with numbers as no peer would.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>

#include "ctran/collective/signature.h"
#include "ctran/engine/communicator.h"
#include "ctran/engine/exchange_all.h"
#include "ctran/transport/transport.h"
#include "ctran/window/window.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Kind = CollectiveKind;

constexpr uint64_t kFirst = kCreation + 1;  // the sequence of the collective after the creation

/// What a rank has told this one of the collective that it is in.
OperationRecord heardOf(Communicator& communicator, int rank) {
  auto& control = communicator.core().board.control(rank);
  while (control.begun.load(std::memory_order_acquire) < kFirst) communicator.transport()->poll();
  return *control.collectives.find(kFirst);
}

/// Sends bytes as the message `buffer` of that collective, and keeps at it until this rank's
/// communicator is broken; returns why it is.
Error sayUntilBroken(Communicator& communicator, int rank, uint32_t buffer, const void* data,
                     size_t bytes, const OperationRecord& as) {
  const auto sent = communicator.transport()->send({kCollectiveQueue, buffer, kFirst}, rank,
                                                   static_cast<const std::byte*>(data), bytes, as);
  while (!communicator.isAborted()) continue;
  return errorOf([&] { communicator.run({}); });
}

/// Ranks 0 and 1 share a host; rank 2 is to send rows to rank 0, for both.
class HostileRows : public ::testing::TestWithParam<std::vector<uint64_t>> {};

TEST_P(HostileRows, AreRefusedByTheirNoteAndNothingIsAllocated) {
  const std::vector<uint64_t> note = GetParam();
  runRanks(
      3,
      [&](Communicator& communicator) {
        if (communicator.rank() == 2) {
          const Error error = sayUntilBroken(communicator, 0, 0, note.data(), 8 * note.size(),
                                             heardOf(communicator, 0));
          EXPECT_EQ(error.kind(), ErrorKind::Mismatch) << error.what();
          return;
        }
        constexpr size_t kElements = 1024, kRows = 4;
        std::vector<float> input(kElements * kRows, 1), output(3 * input.size(), -1);
        std::vector<int64_t> counts(3, 1), indices{0, 1, 2}, received(3, 0);
        const auto rows = std::make_shared<RowExchange>();
        rows->inputRows = kRows;
        rows->outputRows = 3 * kRows;
        rows->sendCounts = counts.data();
        rows->sendIndices = indices.data();
        rows->indices = indices.size();
        rows->received = received.data();
        rows->dedup = true;
        Collective c;
        c.kind = Kind::AllToAllVDynamic;
        c.type = DataType::Float32;
        c.count = kElements;
        c.input = reinterpret_cast<const std::byte*>(input.data());
        c.output = reinterpret_cast<std::byte*>(output.data());
        c.rows = rows;
        const Error error = errorOf([&] { communicator.run(c); });
        EXPECT_EQ(error.kind(), ErrorKind::Mismatch) << error.what();
        EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
        EXPECT_EQ(std::count(output.begin(), output.end(), -1.0f),
                  static_cast<std::ptrdiff_t>(output.size()));
      },
      2);
}

constexpr uint64_t kHuge = uint64_t{1} << 52;  // times 4 KB it is 2^64
INSTANTIATE_TEST_SUITE_P(
    Notes, HostileRows,
    ::testing::Values(std::vector<uint64_t>{kHuge, kHuge, 0}, std::vector<uint64_t>{kHuge, 1, 1},
                      std::vector<uint64_t>{1, UINT64_MAX, 2}, std::vector<uint64_t>{3, 1, 1},
                      std::vector<uint64_t>{13, 13, 0},
                      std::vector<uint64_t>{UINT64_MAX, UINT64_MAX, UINT64_MAX}));

TEST(Hostile, TypesAndReductionsBeyondTheTablesAreNamedAsUnknown) {
  for (const bool posted : {false, true}) {
    runRanks(
        2,
        [posted](Communicator& communicator) {
          float data[100] = {};
          Collective c;
          c.kind = Kind::AllReduce;
          c.type = DataType::Float32;
          c.count = std::size(data);
          c.input = c.output = reinterpret_cast<std::byte*>(data);
          if (communicator.rank() == 1) {
            OperationRecord as = heardOf(communicator, 0);
            as.signature ^= 1;
            as.what = uint64_t(Kind::AllReduce) | 0xffff00;  // type and reduction 255
            sayUntilBroken(communicator, 0, 0, data, 8, as);
            return;
          }
          const Error error = errorOf([&] {
            if (posted) {
              communicator.post(c)->wait();
            } else {
              communicator.run(c);
            }
          });
          EXPECT_EQ(error.kind(), ErrorKind::Mismatch) << error.what();
          const std::string text = error.what();
          EXPECT_NE(text.find("unknown reduction, unknown type"), std::string::npos) << text;
          EXPECT_EQ(error.ranks(), (std::vector<int>{0, 1}));
        },
        1);
  }
}

/// As a rank that has a window, but speaks for itself.
struct BareWindow {
  struct Announcement {
    uint64_t bytes = 64, signalWords = 8, tag = 0, fileBytes = 0, fileOffset = 0;
  };
  struct Header {
    uint64_t request, offset, bytes, value;
  };
  static constexpr uint64_t kGet = 3;

  explicit BareWindow(Communicator& parent) {
    communicator = parent.split(std::vector<int>{0, 1}, parent.name() + "/window");
    exchangeAll(*communicator, Announcement{});
    communicator->handOver(4096, openOwnPidFd(), nullptr);
    exchangeAll(*communicator, RemoteMemory{});
    communicator->run(Collective{}, {}, nullptr);
  }
  std::shared_ptr<Work> say(const Header& header) const {
    const auto kept = std::make_shared<Header>(header);
    Collective c;
    c.kind = Kind::Send;
    c.type = DataType::Opaque1;
    c.count = sizeof header;
    c.root = 0;
    c.input = reinterpret_cast<const std::byte*>(kept.get());
    return communicator->post(c, {}, kept);
  }

  std::shared_ptr<Communicator> communicator;
};

TEST(Hostile, WhoAsksAndTakesNoAnswersIsRefused) {
  // Each answer that is not taken is looked at for each question.
  if (kThreadSanitizer) GTEST_SKIP() << "it takes minutes, and is tested without";
  runRanks(
      2,
      [](Communicator& communicator) {
        if (communicator.rank() == 0) {
          std::vector<std::byte> memory(4096);
          const auto window = Window::create(communicator, memory, {});
          const Error error = errorOf([&] { Window::finish(window->waitSignal(1)); });
          EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
          EXPECT_NE(std::string(error.what()).find("takes no answers"), std::string::npos)
              << error.what();
          return;
        }
        const BareWindow window(communicator);
        errorOf([&] {
          while (true) window.say({BareWindow::kGet, 0, 4096, 0})->wait();
        });
      },
      1);
}

TEST(Hostile, MoreGetsThanAreAnsweredAtATimeAreRefusedAtTheCall) {
  // Each get that is open is looked at for each that ends.
  if (kSanitizer) GTEST_SKIP() << "it takes minutes, and is tested without";
  runRanks(
      2,
      [](Communicator& communicator) {
        std::vector<std::byte> memory(8, std::byte{7}), got(8);
        const auto window = Window::create(communicator, memory, {});
        const int peer = 1 - communicator.rank();
        std::vector<Window::WorkPtr> works;
        for (int i = 0; i < 9'000; ++i) {
          try {
            works.push_back(window->get(peer, 0, got));
          } catch (const Error& error) {
            ASSERT_EQ(error.kind(), ErrorKind::InvalidArgument) << error.what();
            Window::finish(works.back());
          }
        }
        for (const auto& work : works) Window::finish(work);
        EXPECT_EQ(got, memory);
        window->close();
      },
      1);
}

}  // namespace
}  // namespace ctran::testing
