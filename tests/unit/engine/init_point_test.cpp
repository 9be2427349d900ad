// Communicators formed by handles, without a store.
#include <gtest/gtest.h>

#include <barrier>

#include "ctran/bootstrap/bootstrap_tree.h"
#include "ctran/engine/init_point.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Handles = std::vector<std::string>;

CommunicatorOptions options(std::chrono::nanoseconds timeout = kGuard) {
  CommunicatorOptions made;
  made.name = "formed";
  made.timeout = timeout;
  return made;
}

/// What every rank of the communicator passes, by rank.
std::vector<int32_t> gather(Communicator& communicator, int32_t own) {
  std::vector<int32_t> all(communicator.size(), -1);
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.type = DataType::Int32;
  c.count = 1;
  c.input = reinterpret_cast<const std::byte*>(&own);
  c.output = reinterpret_cast<std::byte*>(all.data());
  communicator.run(c);
  return all;
}

/// Where a thread is, if so many are on each host; 0: all on this one.
std::string hostOf(int rank, int perHost) {
  return hostIdentity(perHost == 0 ? "" : "host" + std::to_string(rank / perHost));
}

/// Threads with an InitPoint each, who know each other's handles.
void runPoints(int size, const std::function<void(int, InitPoint&, const Handles&)>& body,
               int perHost = 0) {
  Handles handles(size);
  std::barrier together(size);
  runThreads(size, [&](int rank) {
    InitPoint point(hostOf(rank, perHost));
    handles[rank] = point.handle();
    together.arrive_and_wait();
    body(rank, point, handles);
  });
}

/// So many ranks on each host; 0: all on this one.
class InitPoints : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Hosts, InitPoints, ::testing::Values(0, 1, 2));

TEST_P(InitPoints, FormOneCommunicatorAfterAnother) {
  const auto body = [](int own, InitPoint& point, const Handles& handles) {
    const auto form = [&](const std::string& occasion, const std::vector<int32_t>& members) {
      if (std::find(members.begin(), members.end(), own) == members.end()) return;
      Handles chosen;
      for (const int32_t m : members) chosen.push_back(handles[m]);
      const auto communicator = point.form(chosen, occasion, options());
      EXPECT_EQ(gather(*communicator, own), members);
    };
    form("all", {0, 1, 2, 3});
    form("permuted", {2, 0, 3, 1});
    form(own % 2 == 0 ? "even" : "odd",
         own % 2 == 0 ? std::vector<int32_t>{2, 0} : std::vector<int32_t>{1, 3});
    form("alone", {own});
    form("fewer", {3, 1, 0});
    form("merged", {0, 1, 2, 3});
  };
  runPoints(4, body, GetParam());
}

TEST_P(InitPoints, ServeManyOccasions) {
  const auto body = [](int own, InitPoint& point, const Handles& handles) {
    for (int i = 0; i < 20; ++i) {
      Handles chosen = handles;  // each leads in turn
      std::rotate(chosen.begin(), chosen.begin() + i % 4, chosen.end());
      const auto communicator = point.form(chosen, "occasion " + std::to_string(i), options());
      EXPECT_EQ(gather(*communicator, own)[0], i % 4);
    }
  };
  runPoints(4, body, GetParam());
}

TEST_P(InitPoints, TellOccasionsApart) {
  // Rank 1 comes for the second occasion while rank 0 still waits for the first.
  std::barrier together(3);
  const auto body = [&](int own, InitPoint& point, const Handles& handles) {
    if (own == 0) {
      const Error error = errorOf([&] {
        point.form({handles[0], handles[1], handles[2]}, "first",
                   options(std::chrono::milliseconds(200)));
      });
      EXPECT_EQ(error.kind(), ErrorKind::Timeout);
      EXPECT_EQ(error.ranks(), (std::vector<int>{1, 2}));
    }
    if (own == 2) return together.arrive_and_drop();
    const auto communicator = point.form({handles[0], handles[1]}, "second", options());
    EXPECT_EQ(gather(*communicator, own), (std::vector<int32_t>{0, 1}));
    together.arrive_and_drop();
  };
  runPoints(3, body, GetParam());
}

TEST_P(InitPoints, NameALeaderThatDoesNotCome) {
  const InitPoint idle(hostOf(0, GetParam()));
  InitPoint point(hostOf(1, GetParam()));
  const Error error = errorOf([&] {
    point.form({idle.handle(), point.handle()}, "alone", options(std::chrono::milliseconds(100)));
  });
  EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
  EXPECT_EQ(error.ranks(), std::vector<int>{0});
  EXPECT_NE(error.hint().find("the same handles"), std::string::npos) << error.what();
}

TEST_P(InitPoints, NameALeaderThatIsNoMore) {
  std::string gone;
  {
    const InitPoint point(hostOf(0, GetParam()));
    gone = point.handle();
  }
  InitPoint point(hostOf(1, GetParam()));
  const Error error = errorOf([&] { point.form({gone, point.handle()}, "late", options()); });
  EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
  EXPECT_EQ(error.ranks(), std::vector<int>{0});
}

/// Of ranks that do not agree: what each is told.
std::vector<std::string> disagreeing(int size, int perHost,
                                     const std::function<Handles(int, const Handles&)>& listOf,
                                     const std::function<std::string(int)>& occasionOf) {
  std::vector<std::string> told(size);
  std::barrier together(size);
  const auto body = [&](int own, InitPoint& point, const Handles& handles) {
    const Error error = errorOf([&] {
      point.form(listOf(own, handles), occasionOf(own), options(std::chrono::milliseconds(500)));
    });
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
    EXPECT_EQ(error.op(), "reconfigure");
    told[own] = error.what();
    together.arrive_and_wait();
  };
  runPoints(size, body, perHost);
  return told;
}

TEST_P(InitPoints, TellOfMembersWithAnotherOccasion) {
  const auto told = disagreeing(
      3, GetParam(), [](int, const Handles& handles) { return handles; },
      [](int own) { return "occasion " + std::to_string(own); });
  EXPECT_NE(told[0].find("for another occasion: uuid or handles differ"), std::string::npos)
      << told[0];
  for (const int r : {1, 2}) {
    EXPECT_NE(told[r].find("rank 0, which means another occasion"), std::string::npos) << told[r];
  }
}

TEST_P(InitPoints, TellOfMembersWithAnotherList) {
  const auto told = disagreeing(
      3, GetParam(),
      [](int own, const Handles& handles) {
        return own == 0 ? Handles(handles.rbegin(), handles.rend()) : handles;
      },
      [](int) { return std::string("the same"); });
  for (const int r : {0, 2}) {
    EXPECT_NE(told[r].find("for another occasion: uuid or handles differ"), std::string::npos)
        << told[r];
  }
}

TEST_P(InitPoints, NameAMemberThatIsNoMore) {
  std::string gone;
  {
    const InitPoint point(hostOf(2, GetParam()));
    gone = point.handle();
  }
  const auto body = [&](int, InitPoint& point, const Handles& handles) {
    const Error error = errorOf([&] {
      point.form({handles[0], handles[1], gone}, "late", options());
    });
    EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
    EXPECT_EQ(error.ranks(), std::vector<int>{2});
    EXPECT_NE(error.hint().find("leave its handle out"), std::string::npos) << error.what();
  };
  runPoints(2, body, GetParam());
}

TEST(InitPoint, NamesAMemberThatIsNoMoreAmongMany) {
  constexpr int kMembers = BootstrapTree::kMostInOneLevel + 2;
  InitPoint point;
  Handles handles{point.handle()};
  std::vector<std::unique_ptr<InitPoint>> idle;
  for (int r = 1; r < kMembers; ++r) {
    idle.push_back(std::make_unique<InitPoint>());
    handles.push_back(idle.back()->handle());
  }
  idle[16].reset();
  const Error error = errorOf([&] { point.form(handles, "many", options()); });
  EXPECT_EQ(error.kind(), ErrorKind::PeerLost) << error.what();
  EXPECT_EQ(error.ranks(), std::vector<int>{17});
}

TEST(InitPoint, RefusesWhatMakesNoGroup) {
  InitPoint point;
  const std::string& own = point.handle();
  std::string broken = own;
  broken.back() = 'x';
  for (const Handles& handles :
       {Handles{}, Handles{"ctran:00"}, Handles{own, own}, Handles{own, "fake:1"},
        Handles{own, "ctran:00"}, Handles{own, broken}}) {
    const Error error = errorOf([&] { point.form(handles, "wrong", options()); });
    EXPECT_EQ(error.kind(), ErrorKind::InvalidArgument) << error.what();
  }
}

}  // namespace
}  // namespace ctran::testing
