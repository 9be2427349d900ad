// Ranks that know one address and one secret tell each other a word each.
#include "ctran/bootstrap/rendezvous.h"

#include <gtest/gtest.h>

#include <thread>

#include "ctran/base/error.h"
#include "ctran/os/tcp_socket.h"
#include "tests/unit/support/ranks.h"

namespace ctran::testing {
namespace {

using Words = std::vector<std::string>;

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

std::string wordOf(int rank) { return std::string(1000 * rank, 'w') + std::to_string(rank); }

/// What rank 0 and those who join hear, or the error's text.
struct Outcome {
  Words words;
  std::string error;
  std::vector<int> ranks;
};

template <class Function>
Outcome outcomeOf(Function&& function) {
  try {
    return {function(), "", {}};
  } catch (const Error& error) {
    return {{}, error.what(), error.ranks()};
  }
}

/// Rank 0 gathers words of `size` ranks; `joining` join as the ranks that they name.
std::vector<Outcome> meet(int size, const std::vector<int>& joining,
                          std::chrono::milliseconds time = kGuard,
                          const std::string& secret = "secret") {
  Rendezvous rendezvous({}, "secret");
  std::vector<Outcome> outcomes(joining.size() + 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < joining.size(); ++i) {
    threads.emplace_back([&, i] {
      outcomes[i + 1] = outcomeOf([&] {
        return Rendezvous::join(rendezvous.addresses(), secret, joining[i], size,
                                wordOf(joining[i]), in(time));
      });
    });
  }
  outcomes[0] = outcomeOf([&] { return rendezvous.gather(size, wordOf(0), in(time)); });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

TEST(Rendezvous, AllHearAllByRank) {
  for (const int size : {1, 2, 9}) {
    std::vector<int> joining;
    Words wanted;
    for (int r = 0; r < size; ++r) {
      wanted.push_back(wordOf(r));
      if (r > 0) joining.insert(joining.begin(), r);
    }
    for (const Outcome& outcome : meet(size, joining)) EXPECT_EQ(outcome.words, wanted);
  }
}

TEST(Rendezvous, WhoDoesNotComeIsNamedOnAllRanks) {
  for (const auto& [words, error, ranks] : meet(4, {2}, std::chrono::milliseconds(300))) {
    EXPECT_EQ(ranks, (std::vector{1, 3}));
    EXPECT_NE(error.find("for ranks 1, 3 of 4, who did not come"), std::string::npos) << error;
  }
}

TEST(Rendezvous, WhoDoesNotHaveTheSecretHearsNothing) {
  const auto outcomes = meet(2, {1}, std::chrono::milliseconds(300), "another secret");
  EXPECT_EQ(outcomes[0].ranks, (std::vector{1}));
  EXPECT_NE(outcomes[0].error.find("; a caller from "), std::string::npos) << outcomes[0].error;
  EXPECT_NE(outcomes[0].error.find(" has another secret"), std::string::npos);
  EXPECT_NE(outcomes[1].error.find("that has another key"), std::string::npos) << outcomes[1].error;
  EXPECT_TRUE(outcomes[1].words.empty());
}

TEST(Rendezvous, TwoOfOneRankAreTold) {
  const auto outcomes = meet(3, {1, 1}, std::chrono::milliseconds(500));
  EXPECT_EQ(outcomes[0].ranks, (std::vector{2}));
  const bool first = outcomes[1].error.find("rank 1 cannot join") != std::string::npos;
  const bool second = outcomes[2].error.find("rank 1 cannot join") != std::string::npos;
  EXPECT_NE(first, second) << outcomes[1].error << "\n" << outcomes[2].error;
}

TEST(Rendezvous, StrangersWhoSayNothingOrAnythingHoldNobodyUp) {
  Rendezvous rendezvous({}, "secret");
  std::vector<Socket> strangers;
  for (int i = 0; i < 3; ++i) strangers.push_back(beginConnect(rendezvous.addresses()[0]));
  std::thread other([&] {
    static_cast<void>(Rendezvous::join(rendezvous.addresses(), "secret", 1, 2, "one", in(kGuard)));
  });
  EXPECT_EQ(rendezvous.gather(2, "nought", in(kGuard)), (Words{"nought", "one"}));
  other.join();
}

TEST(Rendezvous, WordsAreBounded) {
  Rendezvous rendezvous({}, "secret");
  const std::string large(Rendezvous::kMaxWord + 1, 'x');
  EXPECT_THROW(static_cast<void>(rendezvous.gather(1, large, in(kGuard))), Error);
}

TEST(Rendezvous, AddressesAreReadAsTheyAreWritten) {
  for (const char* text : {"10.0.0.1:1234", "[fd00::1]:80"}) {
    EXPECT_EQ(parseNetAddress(text).text(), text);
  }
  for (const char* text : {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:x", "host:80", "1.2.3:4", ":1",
                           "10.0.0.1:99999", "10.0.0.1:-1"}) {
    EXPECT_THROW(static_cast<void>(parseNetAddress(text)), Error) << text;
  }
}

}  // namespace
}  // namespace ctran::testing
