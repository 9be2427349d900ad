// Every plan of the library is spoilt in every place and every way: the verifier has to notice,
// unless what comes out is still right.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>

#include "ctran/base/error.h"
#include "ctran/plan/library.h"
#include "ctran/plan/verify.h"
#include "tests/unit/plan/adversary.h"
#include "tests/unit/support/ranks.h"

namespace ctran::plan {
namespace {

using Accept = std::function<void(const char* operation, const Plan& mutant)>;

/// Where the n-th signal on a channel is given: step and index in its list.
struct SignalAt {
  int step;
  size_t index;
};
std::vector<SignalAt> signalsOn(const Plan& plan, int channel) {
  std::vector<SignalAt> found;
  const Lane& lane = plan.lane(plan.channels[channel].from);
  for (int s = 0; s < static_cast<int>(lane.size()); ++s) {
    for (size_t i = 0; i < lane[s].signals.size(); ++i) {
      if (lane[s].signals[i] == channel) found.push_back({s, i});
    }
  }
  return found;
}

/// A step that is left with nothing to do goes.
void tidy(Plan& plan, LaneId id) {
  std::erase_if(plan.lane(id), [](const Step& step) {
    return step.waits.empty() && !step.moves() && step.signals.empty();
  });
}

void mutateSignals(const Plan& plan, LaneId id, int s, const Accept& accept) {
  const Step& step = plan.lane(id)[s];
  const auto changed = [&](const char* name, const std::function<void(Plan&, Step&)>& change) {
    Plan mutant = plan;
    change(mutant, mutant.lane(id)[s]);
    tidy(mutant, id);
    accept(name, mutant);
  };
  for (size_t i = 0; i < step.waits.size(); ++i) {
    changed("drop a wait", [&](Plan&, Step& m) { m.waits.erase(m.waits.begin() + i); });
    if (s + 1 < static_cast<int>(plan.lane(id).size())) {
      changed("wait a step later", [&](Plan& p, Step& m) {
        p.lane(id)[s + 1].waits.push_back(m.waits[i]);
        m.waits.erase(m.waits.begin() + i);
      });
    }
    // Together with the signal it waits for, so that the counts still match.
    const int channel = step.waits[i].channel;
    int before = 0;
    for (int q = 0; q < s; ++q) {
      for (const Wait& wait : plan.lane(id)[q].waits) {
        if (wait.channel == channel) before += wait.count;
      }
    }
    const auto signals = signalsOn(plan, channel);
    if (before < static_cast<int>(signals.size())) {
      changed("drop a wait and its signal", [&](Plan& p, Step& m) {
        m.waits.erase(m.waits.begin() + i);
        const LaneId from = plan.channels[channel].from;
        auto& list = p.lane(from)[signals[before].step].signals;
        list.erase(list.begin() + static_cast<int>(signals[before].index));
        if (!(from == id)) tidy(p, from);
      });
    }
  }
  for (size_t i = 0; i < step.signals.size(); ++i) {
    changed("drop a signal", [&](Plan&, Step& m) { m.signals.erase(m.signals.begin() + i); });
    if (s > 0) {
      changed("signal a step early", [&](Plan& p, Step& m) {
        p.lane(id)[s - 1].signals.push_back(m.signals[i]);
        m.signals.erase(m.signals.begin() + i);
      });
    }
    for (int c = 0; c < static_cast<int>(plan.channels.size()); ++c) {
      if (c == step.signals[i] || !(plan.channels[c].from == id)) continue;
      changed("signal another", [&](Plan&, Step& m) { m.signals[i] = c; });
      break;
    }
  }
}

void mutateMove(const Plan& plan, LaneId id, int s, const Accept& accept) {
  const Step& step = plan.lane(id)[s];
  if (!step.moves()) return;
  const auto changed = [&](const char* name, const std::function<void(Plan&, Step&)>& change) {
    Plan mutant = plan;
    change(mutant, mutant.lane(id)[s]);
    tidy(mutant, id);
    accept(name, mutant);
  };
  changed("drop a move", [](Plan&, Step& m) {
    m.to.clear();
    m.from.clear();
  });
  changed("one chunk more", [](Plan&, Step& m) { ++m.count; });
  if (step.count > 1) changed("one chunk less", [](Plan&, Step& m) { --m.count; });
  changed("packets", [](Plan&, Step& m) { m.packet = !m.packet; });
  if (step.from.size() > 1) {
    changed("add in another order", [](Plan&, Step& m) { std::swap(m.from[0], m.from[1]); });
    changed("take only the last", [](Plan&, Step& m) { m.from = {m.from.back()}; });
    changed("add one twice", [](Plan&, Step& m) { m.from.push_back(m.from[0]); });
  }
  // Other chunks: of the same part where a buffer has several blocks, else of another part.
  const auto elsewhere = [&](const char* name, bool to, size_t i) {
    const Place& place = to ? step.to[i] : step.from[i];
    const int stride = place.buffer == Buffer::Scratch ? 1 : plan.chunks;
    if (plan.size(place.buffer) <= stride) return;
    changed(name, [&](Plan& p, Step& m) {
      Place& other = to ? m.to[i] : m.from[i];
      other.index = (other.index + stride) % p.size(other.buffer);
    });
  };
  for (size_t i = 0; i < step.from.size(); ++i) elsewhere("read another chunk", false, i);
  for (size_t i = 0; i < step.to.size(); ++i) {
    elsewhere("write another chunk", true, i);
    if (step.to[i].rank == id.rank) continue;
    changed("put to another rank",
            [&](Plan& p, Step& m) { m.to[i].rank = (m.to[i].rank + 1) % p.ranks; });
  }
  if (plan.chunks > 1) {
    changed("another part", [](Plan& p, Step& m) {
      const int part = (m.part + 1) % p.chunks;
      for (auto* list : {&m.to, &m.from}) {
        for (Place& place : *list) {
          if (place.buffer != Buffer::Scratch) place.index += part - m.part;
        }
      }
      m.part = part;
    });
  }
}

void mutate(const Plan& plan, const Accept& accept) {
  for (int r = 0; r < plan.ranks; ++r) {
    for (int l = 0; l < static_cast<int>(plan.programs[r].size()); ++l) {
      const int steps = static_cast<int>(plan.programs[r][l].size());
      for (int s = 0; s < steps; ++s) {
        mutateSignals(plan, {r, l}, s, accept);
        mutateMove(plan, {r, l}, s, accept);
        if (s + 1 == steps) continue;
        Plan mutant = plan;
        std::swap(mutant.programs[r][l][s], mutant.programs[r][l][s + 1]);
        accept("swap two steps", mutant);
      }
    }
  }
  for (size_t c = 0; c < plan.channels.size(); ++c) {
    Plan mutant = plan;
    ++mutant.channels[c].credits;
    accept("a credit more", mutant);
    mutant.channels[c].credits -= 2;
    if (mutant.channels[c].credits >= 0) accept("a credit less", mutant);
  }
  Plan mutant = plan;
  if (plan.kind == CollectiveKind::Broadcast) {
    mutant.root = (plan.root + 1) % plan.ranks;
    accept("another root", mutant);
    mutant = plan;
  }
  if (--mutant.depth > 0) accept("use scratch again too early", mutant);
}

struct Tally {
  int made = 0, rejected = 0, stillRight = 0;
};

TEST(Mutation, TheVerifierNoticesWhatMakesAPlanWrong) {
  const bool few = testing::kSanitizer;
  std::vector<int> sizes{2, 3, 4};
  if (few) sizes = {2};
  if (testing::testsEverything()) sizes = {2, 3, 4, 5, 6, 8};
  std::map<std::string, Tally> tallies;
  Tally all;
  int missed = 0;
  for (const BuiltIn& builtIn : library()) {
    for (const int ranks : sizes) {
      const Recipe recipe{ranks, ranks - 1, 1, 1, ranks % 2 == 0 ? 2 : 1};
      if (!builtIn.whyNot(recipe).empty()) continue;
      const Plan plan = builtIn.make(recipe);
      ASSERT_TRUE(verify(plan).ok());
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        ASSERT_EQ(runUnkindly(plan, 3 * plan.depth, seed), "") << plan.name;
      }
      mutate(plan, [&](const char* operation, const Plan& mutant) {
        if (mutant == plan) return;
        Tally& tally = tallies[operation];
        ++tally.made;
        ++all.made;
        bool rejected = false;
        try {
          rejected = !verify(mutant).ok();
        } catch (const Error&) {
          rejected = true;  // not even well-formed
        }
        if (rejected) {
          ++tally.rejected;
          ++all.rejected;
          return;
        }
        ++tally.stillRight;
        ++all.stillRight;
        for (uint64_t seed = 1; seed <= 12; ++seed) {
          const std::string wrong = runUnkindly(mutant, 3 * plan.depth, seed);
          if (wrong.empty()) continue;
          if (++missed < 5) {
            ADD_FAILURE() << "the verifier accepts " << plan.name << " over " << ranks
                          << " ranks with '" << operation << "', but " << wrong << "\n"
                          << toText(mutant);
          }
          break;
        }
      });
    }
  }
  EXPECT_EQ(missed, 0);
  EXPECT_GT(all.made, few ? 1000 : 10000);
  EXPECT_GT(all.rejected, all.made * 8 / 10);  // or the operations do nothing
  for (const auto& [operation, tally] : tallies) {
    std::printf("  %-28s %6d made %6d rejected %5d still right\n", operation.c_str(), tally.made,
                tally.rejected, tally.stillRight);
  }
  std::printf("  %-28s %6d made %6d rejected %5d still right, %d missed\n", "all", all.made,
              all.rejected, all.stillRight, missed);
}

/// The two judges agree about broken plans: what is rejected does go wrong, sooner or later.
TEST(Mutation, WhatIsRejectedGoesWrong) {
  int rejected = 0, goesWrong = 0;
  for (const char* name : {"all_reduce.ring", "all_reduce.two_shot", "all_gather.bruck"}) {
    const Plan plan = makePlan(name, {3});
    mutate(plan, [&](const char*, const Plan& mutant) {
      try {
        if (mutant == plan || verify(mutant).ok()) return;
      } catch (const Error&) {
        return;
      }
      ++rejected;
      for (uint64_t seed = 1; seed <= 40; ++seed) {
        if (runUnkindly(mutant, 12 * plan.depth, seed).empty()) continue;
        ++goesWrong;
        break;
      }
    });
  }
  std::printf("  of %d rejected mutants %d went wrong in 40 runs\n", rejected, goesWrong);
  EXPECT_GT(goesWrong, rejected * 9 / 10);
}

}  // namespace
}  // namespace ctran::plan
