#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/mscclpp/native/ranks.h"

namespace mscclpp::testing {
namespace {

/// A port that nobody listens at now, and that differs between processes that test.
std::string address(int n) {
  return "127.0.0.1:" + std::to_string(20000 + (::getpid() * 7 + n) % 20000);
}

void exchangeWithAll(Bootstrap& bootstrap) {
  const int rank = bootstrap.getRank();
  const int size = bootstrap.getNranks();
  EXPECT_EQ(bootstrap.getNranksPerNode(), size);
  // All send first: a send does not wait for its receive.
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const std::vector<char> message(100'000 + rank, static_cast<char>(rank * 16 + r));
    bootstrap.send(message, r, 5);
    bootstrap.send(std::vector<char>(), r, 6);
  }
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    std::vector<char> message;
    bootstrap.recv(message, r, 5);
    EXPECT_EQ(message, std::vector<char>(100'000 + r, static_cast<char>(r * 16 + rank)));
    bootstrap.recv(message, r, 6);
    EXPECT_TRUE(message.empty());
  }
  std::vector<int> all(size, -1);
  all[rank] = rank * rank;
  bootstrap.allGather(all.data(), sizeof(int));
  for (int r = 0; r < size; ++r) EXPECT_EQ(all[r], r * r);
  bootstrap.barrier();
  if (rank != 1) {
    std::vector<int> others;
    for (int r = 0; r < size; ++r) {
      if (r != 1) others.push_back(r);
    }
    bootstrap.groupBarrier(others);
  }
  bootstrap.barrier();
}

TEST(TcpBootstrap, RanksMeetByUniqueId) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  struct Told {
    UniqueId id;
    std::atomic<bool> isThere;
  };
  const Shared<Told> told;
  ForkedRanks(4, [&](int rank) {
    TcpBootstrap bootstrap(rank, 4);
    if (rank == 0) {
      told->id = TcpBootstrap::createUniqueId();
      told->isThere.store(true);
    }
    ctran::testing::awaitFlag(told->isThere);
    bootstrap.initialize(told->id, 60);
    EXPECT_EQ(bootstrap.getUniqueId(), told->id);
    exchangeWithAll(bootstrap);
  }).expectSuccess();
}

TEST(TcpBootstrap, RanksMeetAtAnAddress) {
  if (kThreadSanitizer) GTEST_SKIP() << "forks";
  int n = 0;
  for (const std::string& where : {address(0), "lo:" + address(1)}) {
    SCOPED_TRACE(where);
    ForkedRanks(3, [&, n](int rank) {
      if (rank == 0 && n == 0) ::usleep(200'000);  // others are there first
      TcpBootstrap bootstrap(rank, 3);
      bootstrap.initialize(where, 60);
      exchangeWithAll(bootstrap);
    }).expectSuccess();
    ++n;
  }
}

TEST(TcpBootstrap, RanksAreThreadsToo) {
  const UniqueId id = TcpBootstrap::createUniqueId();
  ctran::testing::runThreads(3, [&](int rank) {
    TcpBootstrap bootstrap(rank, 3);
    bootstrap.initialize(id, 60);
    exchangeWithAll(bootstrap);
  });
}

TEST(TcpBootstrap, NoMessageHasNegativeSize) {
  TcpBootstrap bootstrap(0, 1);
  bootstrap.initializeByStore("memory://alone");
  char data = 0;
  const auto refuses = [&](const std::function<void()>& call) {
    EXPECT_NE(errorOf(call).find("no message has -1 bytes"), std::string::npos);
  };
  refuses([&] { bootstrap.send(&data, -1, 0, 0); });
  refuses([&] { bootstrap.recv(&data, -1, 0, 0); });
  refuses([&] { bootstrap.allGather(&data, -1); });
}

TEST(TcpBootstrap, WhoIsMissingIsNamed) {
  const UniqueId id = TcpBootstrap::createUniqueId();
  ctran::testing::runThreads(2, [&](int rank) {  // rank 2 of 3 does not come
    TcpBootstrap bootstrap(rank, 3);
    const std::string error = errorOf([&] { bootstrap.initialize(id, 1); });
    EXPECT_NE(error.find("for ranks 2 of 3"), std::string::npos) << error;
  });
}

TEST(TcpBootstrap, WhoDoesNotKnowTheKeyDoesNotGetIn) {
  const UniqueId id = TcpBootstrap::createUniqueId();
  ctran::testing::runThreads(2, [&](int rank) {
    UniqueId told = id;
    if (rank == 1) told[20] ^= 1;
    TcpBootstrap bootstrap(rank, 2);
    const std::string error = errorOf([&] { bootstrap.initialize(told, 1); });
    EXPECT_NE(error.find("Timeout"), std::string::npos) << error;
  });
}

TEST(TcpBootstrap, AddressesThatAreNoneAreNamed) {
  const auto initialize = [](const std::string& where) {
    return errorOf([&] { TcpBootstrap(0, 2).initialize(where, 1); });
  };
  EXPECT_NE(initialize("lo:10.255.255.1:5000").find("lo does not have the address 10.255.255.1"),
            std::string::npos);
  EXPECT_NE(initialize("none0:127.0.0.1:5000").find("no network interface none0"),
            std::string::npos);
  EXPECT_NE(initialize("nonsense").find("'nonsense' is no address"), std::string::npos);
  EXPECT_NE(errorOf([] { TcpBootstrap(2, 2); }).find("no rank 2 of 2"), std::string::npos);
}

TEST(TcpBootstrap, APortThatIsTakenIsNamed) {
  const std::string where = address(2);
  ctran::testing::runThreads(1, [&](int) {
    const UniqueId id = TcpBootstrap::createUniqueId();
    const std::string text(reinterpret_cast<const char*>(id.data()) + 40);
    const std::string taken = text.substr(0, text.find(' '));
    const std::string error = errorOf([&] { TcpBootstrap(0, 2).initialize(taken, 1); });
    EXPECT_NE(error.find(taken), std::string::npos) << error;
  });
}

}  // namespace
}  // namespace mscclpp::testing
